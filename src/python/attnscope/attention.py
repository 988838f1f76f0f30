"""One attention that was seen: its queries and keys, and how its scores follow from them; and the measurement of its rows."""

import torch

from . import masks
from .rows import Rows
from .sampling import real_lengths


class Attention:
    """An attention of [sequence, head] that can give some of its rows.

    path       the module that it ran in
    q          [sequence, head, query, d_head]
    k          [sequence, kv_head, key, d_head]
    scale      what multiplies q·k: a number, or a tensor that broadcasts against [sequence, head, query, key]
    q_scale, k_scale   what the code had already multiplied q and k by: part of `scale`, not of ‖q‖ and ‖k‖
    finish     finish(raw, sequences, positions) → scores, with softcap, bias and mask; -inf where masked
    real_queries, real_keys   [sequence, position], false for padding; None where there is none
    """

    has_sink = False
    is_biased = False  # whether `finish` adds more than a mask
    over = "keys"  # the axis of the softmax
    has_documents, documents = False, None  # whether the batch has several documents; [sequence, key] where each key has one

    def __init__(self, path, q, k, scale, finish=None, q_scale=1.0, k_scale=1.0):
        q, k = _local(q), _local(k)
        self.path, self.q, self.k, self.scale, self.finish = path, q, k, scale, finish
        self.q_scale, self.k_scale = q_scale, k_scale
        self.real_queries = self.real_keys = None
        self.n_heads, self.d_head = q.shape[1], q.shape[-1]
        self.n_queries, self.n_keys = q.shape[2], k.shape[2]
        self.n_sequences = max(q.shape[0], k.shape[0])

    @property
    def shape(self):
        return self.n_heads, self.n_queries, self.n_keys

    @property
    def is_cross(self):
        return self.n_queries > self.n_keys

    def key_of(self, positions):
        """The key at a query's own place: with a cache, keys outnumber queries from the left."""
        return positions + max(self.n_keys - self.n_queries, 0)

    def query_rows(self, sequences, positions):
        """[sequence, head, row, d_head] in float32."""
        heads = torch.arange(self.n_heads, device=self.q.device)
        return self.q[sequences[:, None, None], heads[None, :, None], positions[:, None]].float()

    def products(self, sequences, positions):
        """scale·q·k [sequence, head, row, key], ‖q‖ [sequence, head, row] and ‖k‖ [sequence, head, key]."""
        q = self.query_rows(sequences, positions)
        k = self.k[sequences].float()
        n_shared = self.n_heads // k.shape[1]
        grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])  # heads that share keys in one product
        raw = (grouped @ k.transpose(-1, -2)).reshape(*q.shape[:3], -1)
        k_norms = (k.norm(dim=-1) / abs(self.k_scale)).repeat_interleave(n_shared, dim=1)
        return raw * _post_scale(self), q.norm(dim=-1) / abs(self.q_scale), k_norms

    def rows(self, sequences, positions):
        raw, q_norms, k_norms = self.products(sequences, positions)
        scores = raw if self.finish is None else self.finish(raw, sequences, positions)
        return self.of_rows(scores, raw, None, q_norms, k_norms, sequences, positions, self.is_biased)

    def of_rows(self, scores, raw, pattern, q_norms, k_norms, sequences, positions, is_biased):
        """Rows of these sequences, with what is known of their keys."""
        real = None if self.real_keys is None else self.real_keys[sequences]
        documents = None if self.documents is None else self.documents[sequences]
        scale = self.scale
        if isinstance(scale, torch.Tensor) and scale.dim():
            scale = scale.squeeze(-1)
        return Rows(scores, raw, pattern, q_norms, k_norms, self.key_of(positions), real, scale, is_biased, documents)


def _local(x):
    """The part of a distributed tensor that this process has: some of the heads."""
    return x.to_local() if hasattr(x, "to_local") else x


def _post_scale(attention):
    """What still multiplies the product of q and k as they are."""
    return attention.scale / (attention.q_scale * attention.k_scale)


class Softmax(Attention):
    """An attention whose code made scores and put them through a softmax: the scores are its own.

    scores     [sequence, head, query, key + sinks]
    pattern    the same after the softmax; None where that was over keys
    sinks      (how many columns are no keys, whether they stand at the end)
    """

    def __init__(self, path, q, k, scale, scores, pattern, sinks, q_scale=1.0, k_scale=1.0):
        super().__init__(path, q, k, scale, None, q_scale, k_scale)
        scores = _local(scores)
        self.scores, self.pattern, self.sinks = scores, None if pattern is None else _local(pattern), sinks
        self.n_heads, self.n_queries = scores.shape[1:3]
        self.n_keys = scores.shape[3] - sinks[0]
        self.n_sequences = scores.shape[0]
        self.has_sink = sinks[0] > 0

    def rows(self, sequences, positions):
        raw, q_norms, k_norms = self.products(sequences, positions)
        heads = torch.arange(self.n_heads, device=self.scores.device)
        index = sequences[:, None, None], heads[None, :, None], positions[:, None]
        scores = self.scores[index].float()
        pattern = None if self.pattern is None else self.pattern[index].float()
        n_sinks, at_end = self.sinks
        if n_sinks:
            begin = 0 if at_end else n_sinks
            pattern = (scores.softmax(-1) if pattern is None else pattern).narrow(-1, begin, self.n_keys)
            scores = scores.narrow(-1, begin, self.n_keys)
        return self.of_rows(scores, raw, pattern, q_norms, k_norms, sequences, positions, True)


class Packed(Attention):
    """Sequences one after another in one tensor.

    q, k         [position, head, d_head] of all sequences
    of_q, of_k   where each sequence begins, and where the last one ends
    finish_of    finish_of(n_queries, n_keys) → what `finish` is for a sequence of that size
    """

    def __init__(self, path, q, k, scale, of_q, of_k, finish_of, q_scale=1.0, k_scale=1.0):
        super().__init__(path, q.transpose(0, 1)[None], k.transpose(0, 1)[None], scale, None, q_scale, k_scale)
        self.of_q, self.of_k, self.finish_of = of_q, of_k, finish_of
        self.n_sequences = len(of_q) - 1
        self.longest = max((end - begin for begin, end in zip(of_k, of_k[1:])), default=0)

    def lengths(self):
        return [end - begin for begin, end in zip(self.of_q, self.of_q[1:])]

    def one(self, i):
        """One of the sequences as an attention of its own."""
        q = self.q[:, :, self.of_q[i]:self.of_q[i + 1]]
        k = self.k[:, :, self.of_k[i]:self.of_k[i + 1]]
        return Attention(self.path, q, k, self.scale, self.finish_of(q.shape[2], k.shape[2]), self.q_scale, self.k_scale)


class Measured:
    """The row summaries of one attention and what its mask shows them, left on its device until they are asked for."""

    def __init__(self, attention):
        self.path, self.shape, self.is_cross = attention.path, attention.shape, attention.is_cross
        self.n_heads, self.d_head, self.has_sink = attention.n_heads, attention.d_head, attention.has_sink
        self.has_padding, self.has_documents = attention.real_keys is not None, attention.has_documents
        self.over = attention.over
        self.parts, self.shown, self.k_sums, self.k_counts = [], [], [], []

    def add(self, rows, fields, k_norms, real):
        self.parts.append(rows.summary(fields))
        if not self.is_cross:
            self.shown.append(masks.shown(rows))
        if real is None:
            self.k_sums.append(k_norms.sum((0, 2)))  # [head]
            self.k_counts.append(k_norms.shape[0] * k_norms.shape[2])
        else:
            self.k_sums.append(k_norms.masked_fill(~real[:, None], 0.0).sum((0, 2)))
            self.k_counts.append(real.sum().to(k_norms.dtype))

    def on_host(self):
        """({field: [head, row]}, mean ‖k‖ of each head) in float64."""
        names = list(self.parts[0]) if self.parts else []
        rows = {}
        if names:  # in one transfer
            together = torch.stack([torch.cat([part[name] for part in self.parts], 1) for name in names])
            rows = dict(zip(names, together.cpu().to(torch.float64)))
        if not self.k_sums:
            return rows, torch.full((self.n_heads,), torch.nan, dtype=torch.float64)
        return rows, sum(s.cpu().to(torch.float64) for s in self.k_sums) / sum(float(n) for n in self.k_counts)


def measure(attention, sampler, n_record, fields):
    """Summaries of the rows that the sampler chooses, or of all of them."""
    measured = Measured(attention)
    if isinstance(attention, Packed):
        for sequences, places in sampler.blocks(n_record, attention.lengths(), attention.n_heads, attention.longest):
            for i, chosen in zip(sequences, places):
                one = attention.one(i)
                first, positions = torch.zeros(1, dtype=torch.int64), torch.tensor([chosen])
                rows = one.rows(first.to(one.q.device), positions.to(one.q.device))
                measured.add(rows, fields, rows.k_norms[:0 if chosen[0] else 1], None)
        return measured
    lengths, order = real_lengths(attention.real_queries, attention.n_sequences, attention.n_queries)
    device = attention.q.device
    counted = set()
    for sequences, chosen, positions in sampler.on(device, n_record, lengths, attention.n_heads, attention.n_keys):
        if order is not None:
            positions = order.to(device)[chosen].gather(-1, positions)
        rows = attention.rows(chosen, positions)
        new = [at for at, i in enumerate(sequences) if i not in counted]  # keys count once, however many blocks
        counted.update(sequences)
        new = slice(None) if len(new) == len(sequences) else new
        measured.add(rows, fields, rows.k_norms[new], None if rows.real is None else rows.real[new])
    return measured

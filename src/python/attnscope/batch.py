"""What a pass shows beside attention: the batch's padding and documents, what its labels are, and the loss by position."""

import re

import torch

from . import _capture as seen

# Rows of logits that losses are computed of: so many sequences, and positions of each.
N_SEQUENCES, N_POSITIONS = 8, 32
_NO_TOKENS = re.compile(r"label|target|tgt|trg|^y$|position|type|segment|cache|document|seq|mask")
_LABELS = re.compile(r"label|target|tgt|trg|^y$")
_DOCUMENTS = re.compile(r"document_?ids?|doc_?ids?|seq_idx|sequence_ids?|sample_ids?")
_BOUNDARIES = re.compile(r"cu_?seq_?lens?(_q|_k)?$")


class Batch:
    """One batch of token ids [sequence, position]; everything stays on its device until `on_host`."""

    def __init__(self):
        self.tokens = self.labels = self.documents = self.losses = self.embedded = None

    def read(self, named, is_root):
        """Takes what it knows from the arguments of a module, by name."""
        ids = {name: value.detach() for name, value in named.items() if seen._is_ids(value) and value.dim() == 2}
        if self.tokens is None:
            self.tokens = next((value for name, value in ids.items() if not _NO_TOKENS.search(name)), None)
        if self.tokens is None:
            return
        if is_root and self.labels is None:
            alike = (value for name, value in ids.items() if _LABELS.search(name) and value.shape == self.tokens.shape)
            self.labels = next(alike, None)
        if self.documents is None:
            self.documents = _documents(named, ids, self.tokens.shape)

    def looked_up(self, ids):
        """An embedding was looked up: the first one that fits tells whether the model reads its tokens where they stand."""
        if self.embedded is None and self.tokens is not None and isinstance(ids, torch.Tensor) and ids.shape == self.tokens.shape:
            self.embedded = ids.detach()

    def give(self, attention):
        """Tells an attention to which document each of its positions belongs."""
        documents = self.documents
        attention.has_documents = documents is not None
        if documents is None or attention.n_queries != attention.n_keys:
            return
        if tuple(documents.shape) == (attention.n_sequences, attention.n_keys):
            attention.documents = documents.to(attention.q.device)

    def left(self, output, real):
        """The pass is over: losses of some positions, where its logits are at hand. `real`: [sequence, position] or None"""
        logits = None if self.tokens is None else _logits(output, self.tokens)
        if logits is not None and self.tokens.shape[1] > 1 and int(self.tokens.max()) < logits.shape[-1]:
            self.losses = _losses(logits, self.tokens, real)

    def on_host(self, real):
        """What the log has of the batch: a dictionary of what is known."""
        known = {}
        if real is not None:
            known["padding"] = _share(~real)
        if self.documents is not None:
            known["documents"] = _n_documents(self.documents, real)
        if self.labels is not None:
            known["labels"] = _kind_of(self.labels, self.tokens, real)
        if self.losses is not None and self.embedded is not None:
            known["reads"] = _reads(self.embedded, self.tokens)
        if self.losses is not None:
            known.update(_of_losses(*self.losses))
        return known


def _documents(named, ids, shape):
    """The number of each position's document [sequence, position], from 0 on; None where no sequence is known to have several."""
    documents = next((value for name, value in ids.items() if _DOCUMENTS.fullmatch(name) and value.shape == shape), None)
    if documents is None:
        positions = ids.get("position_ids")
        if positions is not None and positions.shape[1] == shape[1] and positions.shape[0] in (1, shape[0]):
            documents = (positions == 0).cumsum(1).expand(shape)
    if documents is None:
        bounds = next((value for name, value in named.items() if _BOUNDARIES.search(name) and isinstance(value, torch.Tensor)
                       and value.dim() == 1 and value.numel() > 2), None)
        if bounds is None or shape[0] != 1 or int(bounds[-1]) != shape[1]:
            return None
        places = torch.arange(shape[1], device=bounds.device, dtype=bounds.dtype)
        documents = torch.bucketize(places, bounds.detach()[1:-1].contiguous(), right=True)[None]
    begins = documents[:, 1:] != documents[:, :-1]
    if not bool(begins.any()):
        return None
    return torch.nn.functional.pad(begins.long().cumsum(1), (1, 0))


def _logits(output, tokens):
    """Logits [sequence, position, vocabulary] of what a model gives; None where there are none."""
    given = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", output)
    for x in given if isinstance(given, (tuple, list)) else (given,):
        if not isinstance(x, torch.Tensor) or hasattr(x, "to_local") or not x.is_floating_point():
            continue
        if x.dim() == 2 and x.shape[0] == tokens.numel() and x.shape[0] != tokens.shape[0]:
            x = x.view(*tokens.shape, -1)
        if x.dim() == 3 and x.shape[:2] == tokens.shape:
            return x.detach()
    return None


def _bins(n):
    """Ranges of positions, each twice as long as the one before: 0, 1, 2–3, 4–7, …"""
    ends, end = [], 1
    while end < n:
        ends.append(end)
        end *= 2
    return list(zip([0, *ends], [*ends, n]))


def _losses(logits, tokens, real):
    """(bins, bin of each position, −log p of the next token, of the own token [sequence, position], which of them count)."""
    n_sequences, n = tokens.shape
    device = tokens.device
    sequences = torch.linspace(0, n_sequences - 1, min(n_sequences, N_SEQUENCES), dtype=torch.float64).round().long()
    bins = _bins(n - 1)  # the last position predicts what the batch does not hold
    each = max(N_POSITIONS // len(bins), 1)
    chosen, of = [], []
    for i, (begin, end) in enumerate(bins):
        places = torch.linspace(begin, end - 1, min(each, end - begin), dtype=torch.float64).round().long().tolist()
        chosen += places
        of += [i] * len(places)
    rows, columns = sequences[:, None].to(device), torch.tensor(chosen, device=device)[None]
    following, own = (tokens[rows, at].clamp(min=0).long().to(logits.device) for at in (columns + 1, columns))
    counted = torch.ones(len(sequences), len(chosen), dtype=torch.bool, device=logits.device)
    if real is not None:
        real = real.to(device)
        counted = (real[rows, columns] & real[rows, columns + 1]).to(logits.device)
    losses = [[], []]
    for i, sequence in enumerate(sequences.tolist()):  # one at a time: a row is as wide as the vocabulary
        x = logits[sequence, columns[0].to(logits.device)].float()
        total = x.logsumexp(-1)
        for kind, ids in zip(losses, (following, own)):
            kind.append(total - x.gather(-1, ids[i][:, None]).squeeze(-1))
    return bins, of, torch.stack(losses[0]), torch.stack(losses[1]), counted


def _of_losses(bins, of, following, own, counted):
    following, own, counted = following.cpu().double(), own.cpu().double(), counted.cpu()
    if not bool(counted.any()):
        return {}
    # A bin counts by its positions in the text, not by how many of them were looked at.
    weight = torch.tensor([(bins[i][1] - bins[i][0]) / of.count(i) for i in of], dtype=torch.float64) * counted
    known = {"next_loss": float((following * weight).sum() / weight.sum()), "own_loss": float((own * weight).sum() / weight.sum())}
    by_position = []
    for i, (_, end) in enumerate(bins):
        here = torch.tensor([at == i for at in of]) & counted
        by_position.append([end, float(following[here].mean()) if bool(here.any()) else None])
    return {**known, "by_position": by_position}


def _kind_of(labels, tokens, real):
    """What labels are: "next" (the tokens one further on), "own" (the tokens themselves, which the model shifts), "part" (some real
    tokens have none) or "other"."""
    real = torch.ones_like(labels, dtype=torch.bool) if real is None else real.to(labels.device)
    has = labels >= 0
    inner = real[:, :-1] & real[:, 1:]
    # labels that are one further on have none at the end of a text, others none at its beginning
    if _share(~has[:, :-1][inner]) > 0.01 and _share(~has[:, 1:][inner]) > 0.01:
        return "part"
    following, own = has[:, :-1] & inner, has & real
    if _share((labels[:, :-1] == tokens[:, 1:])[following]) > 0.99:
        return "next"
    return "own" if _share((labels == tokens)[own]) > 0.99 else "other"


def _n_documents(documents, real):
    """The mean number of documents of real tokens in a row."""
    first, last = documents, documents
    if real is not None:
        real = real.to(documents.device)
        first, last = documents.masked_fill(~real, documents.shape[1]), documents.masked_fill(~real, -1)
    n = (last.amax(1) - first.amin(1) + 1).clamp(min=0)
    return float(n.double().mean())


def _reads(embedded, tokens):
    """Whether position t reads token t ("own") or the one before it ("previous"), as where a model shifts its input."""
    if bool((embedded == tokens).all()):
        return "own"
    return "previous" if bool((embedded[:, 1:] == tokens[:, :-1]).all()) else "other"


def _share(x):
    """The share of true values; 0 of none."""
    return float(x.double().mean()) if x.numel() else 0.0

"""Which query rows of a batch are looked at: all of them, or some that stand for all."""

import random

import torch

# Rows are taken from at most this many sequences of a batch, since the keys of each are read whole.
N_SEQUENCES = 8
# At most this many scores are computed at a time.
N_SCORES = 1 << 24


class Sampler:
    """Chooses rows with random numbers of its own, so that torch's and Python's are left as they are.

    Positions are drawn one from each of equal parts of a sequence: entropy depends on the position, and a plain sample would
    be noisier. Every layer of a step looks at the same rows.
    """

    def __init__(self, n_rows, seed):
        self.n_rows, self.seed = n_rows, seed
        self.last = None, []  # what was asked for, and the answer

    def on(self, device, n_record, lengths, n_heads, n_keys):
        """[(sequences, the same as a tensor, places [sequence, row])] of `blocks`, on a device; the layers of a step share them."""
        asked = (device, n_record, tuple(lengths), n_heads, n_keys)
        if self.last[0] != asked:
            blocks = self.blocks(n_record, lengths, n_heads, n_keys)
            self.last = asked, [(sequences, torch.tensor(sequences, device=device), torch.tensor(places, device=device))
                                for sequences, places in blocks]
        return self.last[1]

    def blocks(self, n_record, lengths, n_heads, n_keys):
        """[(sequences, [places of each])]: blocks of rows that are computed together.

        lengths   for each sequence, how many real queries it has; a place counts among those
        """
        if self.n_rows == 0 or self.n_rows >= sum(lengths):
            return self._all(lengths, n_heads, n_keys)
        chance = random.Random(f"{self.seed} {n_record}")
        usable = [i for i, n in enumerate(lengths) if n]
        n_sequences = min(len(usable), N_SEQUENCES, self.n_rows)
        sequences = _drawn(chance, usable, [lengths[i] for i in usable], n_sequences)
        places = {i: [] for i in sequences}
        for row in range(self.n_rows):
            i = sequences[row % n_sequences]
            places[i].append(min(int((row + chance.random()) / self.n_rows * lengths[i]), lengths[i] - 1))
        by_size = {}  # sequences with as many rows are computed together
        for i in sequences:
            by_size.setdefault(len(places[i]), []).append(i)
        return [(group, [places[i] for i in group]) for group in by_size.values()]

    def _all(self, lengths, n_heads, n_keys):
        step = max(N_SCORES // max(n_heads * n_keys, 1), 1)  # rows at a time
        return [([i], [list(range(begin, min(begin + step, n)))])
                for i, n in enumerate(lengths) for begin in range(0, n, step)]


def _drawn(chance, items, weights, n):
    """n of the items without repetition, likelier the larger their weight; in their order."""
    if n >= len(items):
        return list(items)
    keys = sorted(((chance.random() ** (1 / weight), item) for item, weight in zip(items, weights)), reverse=True)
    return sorted(item for _, item in keys[:n])


def real_lengths(real, n_sequences, n_queries):
    """(how many real queries each sequence has, [sequence, place] → position or None for the identity)."""
    if real is None:
        return [n_queries] * n_sequences, None
    host = real.cpu()
    order = torch.argsort((~host).to(torch.int8), dim=-1, stable=True)  # real positions first, in their order
    return host.sum(-1).tolist(), order

"""Summaries of rows: what is kept of the scores and probabilities of one query of one head."""

from functools import cached_property

import torch


class Rows:
    """Some query rows of one attention, with everything that their summaries are computed from.

    All tensors are float32 and without gradients. A row is one query of one sequence; every head has the same rows.

    scores    [sequence, head, row, key] what went into the softmax, -inf where masked
    raw       [sequence, head, row, key] scale times q·k, before softcap and bias; None where it equals `scores`
    pattern   [sequence, head, row, key] what came out of the softmax; None where it is the softmax of `scores` over keys
    q_norms   [sequence, head, row]      ‖q‖
    k_norms   [sequence, head, key]      ‖k‖
    positions [sequence, row]            the key at each query's own place
    real      [sequence, key]            false for keys that are padding; None where there is none
    scale     what multiplies q·k: a number, or a tensor that broadcasts against [sequence, head, row]
    is_biased whether something may have been added to the scores, beside a mask
    documents [sequence, key]            which document a key belongs to; None where each sequence is one, or nothing is known
    """

    def __init__(self, scores, raw, pattern, q_norms, k_norms, positions, real, scale, is_biased=True, documents=None):
        self.scores, self.given_raw, self.given_pattern = scores, raw, pattern
        self.q_norms, self.k_norms, self.positions, self.real, self.scale = q_norms, k_norms, positions, real, scale
        self.documents = documents
        self.n_keys = scores.shape[-1]
        if is_biased and raw is not None and raw is not scores:
            self.count_from_own_place()

    def summary(self, fields):
        """{field: [head, row]} on the device of the scores; a row is [sequence, row] in one dimension."""
        return {name: getattr(self, name).to(torch.float32).transpose(0, 1).flatten(1) for name in fields}

    # Steps that several fields share.

    @cached_property
    def visible(self):
        return _visible(self.scores, self.given_pattern)

    @cached_property
    def counted(self):
        return self.visible.sum(-1)

    @cached_property
    def pattern(self):
        if self.given_pattern is not None:
            return self.given_pattern
        pattern = self.scores.masked_fill(~self.visible, -torch.inf).softmax(-1)
        return pattern.masked_fill((self.counted == 0)[..., None], 0.0)

    @cached_property
    def raw(self):
        return self.scores if self.given_raw is None else self.given_raw

    def count_from_own_place(self):
        """Where a bias falls or rises evenly with distance (ALiBi), counts it from each query's own place.

        Implementations add any constant to a row, since the softmax takes it out again. That constant is no score.
        """
        if self.n_keys < 2:
            return  # no distance to speak of
        bias = (self.scores - self.raw).masked_fill(~self.visible, torch.nan)  # [sequence, head, row, key]
        steps = bias[..., 1:] - bias[..., :-1]
        known = torch.isfinite(steps)
        low = steps.masked_fill(~known, torch.inf).amin((0, 2, 3))  # [head]
        high = steps.masked_fill(~known, -torch.inf).amax((0, 2, 3))
        largest = self.scores.masked_fill(~self.visible | ~torch.isfinite(self.scores), 0.0).abs().amax((0, 2, 3))
        noise = 1e-5 * (1 + largest)
        is_even = (high - low <= noise) & ((low + high).abs() > 4 * noise) & known.flatten(1).any()
        if is_none(is_even):
            return
        slope = ((low + high) / 2)[:, None, None]
        places = torch.arange(self.n_keys, device=bias.device) - self.positions[:, None, :, None]
        constant = (bias - slope * places).nanmean(-1, keepdim=True).nan_to_num()
        self.scores = torch.where(is_even[:, None, None], self.scores - constant, self.scores)

    def over_visible(self, values):
        """The sum of values over visible keys."""
        return values.masked_fill(~self.visible, 0.0).sum(-1)

    def at_key(self, place):
        """Probability of one key a row; NaN where there is no such key. `place`: [sequence, row], -1 for none."""
        index = place.clamp(0, self.n_keys - 1)[:, None, :, None].expand(*self.pattern.shape[:3], 1)
        found = self.pattern.gather(-1, index).squeeze(-1)
        return found.masked_fill(((place < 0) | (place >= self.n_keys))[:, None], torch.nan)

    @cached_property
    def score_moments(self):
        return self.moments(self.scores)

    @cached_property
    def raw_moments(self):
        return self.score_moments if self.given_raw is None else self.moments(self.raw)

    def moments(self, values):
        """Mean and population variance over visible keys, in two passes."""
        mean = self.over_visible(values) / self.counted
        return mean, self.over_visible((values - mean[..., None]).square()) / self.counted

    # The fields.

    @property
    def n_visible(self):
        return self.counted

    @property
    def q_norm(self):
        return self.q_norms

    @cached_property
    def mass(self):
        return self.pattern.sum(-1)

    @property
    def sum_p2(self):
        return self.pattern.square().sum(-1)

    @property
    def top1(self):
        return self.pattern.amax(-1)  # NaN where any is

    @property
    def entropy(self):
        if self.given_pattern is None:
            # From scores less their largest, so that no digit is lost where they are large.
            shown = self.scores.masked_fill(~self.visible, -torch.inf)
            log_p = shown.log_softmax(-1)
        else:
            log_p = self.pattern.log()
        products = self.pattern * log_p
        return -products.masked_fill(self.pattern == 0, 0.0).sum(-1)  # 0·log 0 is 0; a NaN is not 0

    @property
    def first_mass(self):
        if self.real is None:
            return self.pattern[..., 0]
        first = self.real.to(torch.int8).argmax(-1)
        first = torch.where(self.real.any(-1), first, -1)
        return self.at_key(first[:, None].expand(self.positions.shape))

    @property
    def diagonal_mass(self):
        return self.at_key(self.positions)

    @property
    def previous_mass(self):
        return self.at_key(self.previous)

    @property
    def has_previous(self):
        """1 for rows whose query has a key before its own, NaN for others."""
        known = (self.previous >= 0).to(torch.float32)
        return known.masked_fill(known == 0, torch.nan)[:, None].expand(self.q_norms.shape)

    @cached_property
    def previous(self):
        """The last key before each query's own that is no padding; -1 where there is none. [sequence, row]"""
        if self.real is None:
            return self.positions - 1
        places = torch.arange(self.n_keys, device=self.real.device).expand(self.real.shape)
        latest = places.masked_fill(~self.real, -1).cummax(-1).values  # the last real key up to each key
        before = latest.gather(-1, (self.positions - 1).clamp(0, self.n_keys - 1))
        return before.masked_fill(self.positions < 1, -1)

    @property
    def distance(self):
        places = torch.arange(self.n_keys, device=self.scores.device)
        steps = (self.positions[..., None] - places).abs()  # [sequence, row, key]
        return (self.pattern * steps[:, None]).sum(-1)

    @property
    def later_mass(self):
        """Probability of keys after each query's own place."""
        places = torch.arange(self.n_keys, device=self.scores.device)
        later = places > self.positions[..., None]  # [sequence, row, key]
        return self.pattern.masked_fill(~later[:, None], 0.0).sum(-1)

    @property
    def pad_mass(self):
        """Probability of keys that are padding; 0 in a batch without any."""
        if self.real is None:
            return torch.zeros_like(self.q_norms)
        return self.pattern.masked_fill(self.real[:, None, None], 0.0).sum(-1)

    @property
    def document_mass(self):
        """Probability of keys that belong to another document; 0 where each sequence is one."""
        if self.documents is None:
            return torch.zeros_like(self.q_norms)
        own = self.documents.gather(-1, self.positions)
        others = self.documents[:, None, :] != own[..., None]  # [sequence, row, key]
        others = others if self.real is None else others & self.real[:, None]
        return self.pattern.masked_fill(~others[:, None], 0.0).sum(-1)

    @property
    def score_mean(self):
        return self.score_moments[0]

    @property
    def score_var(self):
        return self.score_moments[1]

    @property
    def score_min(self):
        return self.scores.masked_fill(~self.visible, torch.inf).amin(-1)

    @property
    def score_max(self):
        return self.scores.masked_fill(~self.visible, -torch.inf).amax(-1)

    @property
    def score_norm(self):
        return self.over_visible(self.scores.square()).sqrt()

    @property
    def raw_mean(self):
        return self.raw_moments[0]

    @property
    def raw_var(self):
        return self.raw_moments[1]

    @property
    def raw_abs(self):
        return self.raw.abs().masked_fill(~self.visible, 0.0).amax(-1)

    @property
    def k_norm_sq_sum(self):
        squares = self.k_norms.square()[:, :, None].expand(self.scores.shape)
        return self.over_visible(squares)

    @property
    def predicted(self):
        """scale² ‖q‖² Σ ‖k‖² over visible keys."""
        return (self.q_norms * self.scale).square() * self.k_norm_sq_sum

    @property
    def cosine(self):
        """Mean cosine of the query with its visible keys."""
        scaled = self.k_norms[:, :, None] * (self.q_norms * self.scale)[..., None]
        return self.over_visible(self.raw / scaled) / self.counted


def _visible(scores, pattern):
    """Which keys each row sees: those whose score is not -inf, nor a large negative number put there as a mask.

    Masked cells lie far below all others, and their probability is exactly 0; in a row where nothing else is left, it is
    whatever the row gave. Scores that spread widely without a gap are no mask.
    """
    visible = scores != -torch.inf  # a NaN is visible
    low = (scores <= -5000) & visible
    if scores.numel() == 0 or is_none(low):
        return visible
    is_finite = torch.isfinite(scores)
    others = visible & ~low & is_finite
    top = scores.masked_fill(~(low & is_finite), -torch.inf).amax()
    floor = scores.abs().masked_fill(~others, 0.0).amax()
    is_gap = floor <= 0.2 * top.abs()
    dead = ~others.any(-1, keepdim=True)
    if pattern is None:
        pattern = scores.softmax(-1)
    return visible & ~(low & ((pattern == 0) | dead) & is_gap)


def is_none(flags):
    """Whether no flag is set, where asking is cheap. On other devices the answer is no: they would have to finish all work first."""
    return flags.device.type == "cpu" and not bool(flags.any())

"""The statistics of a head, by the ids and definitions of attnscope's registry, from summaries of its rows."""

import math

import torch

# Row sums this near to 1 are 1 as bf16 rounds it; others are those of no distribution over keys.
MASS_TOLERANCE = 0.03
# Below this trace of the softmax Jacobian a row passes almost no gradient to its scores.
SATURATED_TRACE = 1e-3


class Head:
    """Row summaries of one head in float64, and what the statistics look at beside them.

    rows       {field: [row]}, real queries only
    k_norm     the mean of ‖k‖ over keys that are no padding
    d_head     the width of queries and keys
    is_cross   keys are tokens of another sequence
    has_sink   a learned sink takes what is missing from 1 in the sum of a row
    """

    def __init__(self, rows, k_norm, d_head, is_cross, has_sink):
        self.rows, self.k_norm, self.d_head, self.is_cross, self.has_sink = rows, k_norm, d_head, is_cross, has_sink

    def __getitem__(self, field):
        return self.rows[field]

    def seeing(self, n):
        return self["n_visible"] >= n

    def distributions(self, n):
        """Rows that see n keys; none where some row is no distribution over keys."""
        mass = self["mass"]
        counted = self.seeing(1) & (mass != 0)
        too_little = (mass < 1 - MASS_TOLERANCE) & (not self.has_sink)
        fits = torch.isnan(mass) | ((mass <= 1 + MASS_TOLERANCE) & ~too_little)
        if bool((counted & ~fits).any()):
            return torch.zeros_like(counted)
        return self.seeing(n) & (mass != 0)


def _mean(values):
    return float(values.mean()) if values.numel() else math.nan


def _entropy(head):
    return _mean(head["entropy"][head.distributions(1)])


def _entropy_relative(head):
    rows = head.distributions(2)
    return _mean(head["entropy"][rows] / head["n_visible"][rows].log())


def _effective_keys(head):
    rows = head.distributions(1)
    entropy, mass = head["entropy"][rows], head["mass"][rows]
    if head.has_sink:
        entropy = (entropy / mass + mass.log()).clamp(min=0)
    return _mean(entropy.exp())


def _saturated(head):
    rows = head.distributions(2)
    trace = (head["mass"] - head["sum_p2"])[rows]
    return _mean((trace < SATURATED_TRACE).to(trace.dtype).masked_fill(torch.isnan(trace), math.nan))


def _sink_mass(head):
    return _mean(1 - head["mass"][head.seeing(1)]) if head.has_sink else math.nan


def _previous(head):
    rows = head.seeing(1) & ~torch.isnan(head["has_previous"])
    return math.nan if head.is_cross else _mean(head["previous_mass"][rows])


def _diagonal(head):
    return math.nan if head.is_cross else _mean(head["diagonal_mass"][head.seeing(1)])


def _distance(head):
    return math.nan if head.is_cross else _mean(head["distance"][head.seeing(1)])


def _extreme(head, field, largest):
    """Extremes ignore NaN when they are gathered; a row that holds one has no honest extreme."""
    values = head[field][head.seeing(1)]
    if not values.numel():
        return math.nan
    return float(values.max() if largest else values.min())  # NaN where any is


def _pooled(head, mean, variance):
    """Mean and population variance over all visible pairs, put together from those of the rows (Chan et al. 1979)."""
    rows = head.seeing(1)
    n, means, variances = head["n_visible"][rows], head[mean][rows], head[variance][rows]
    if not n.numel():
        return math.nan, math.nan
    total = n.sum()
    overall = (n * means).sum() / total
    return float(overall), float((n * (variances + (means - overall).square())).sum() / total)


def _predicted(head):
    rows = head.seeing(1)
    n = head["n_visible"][rows].sum()
    return float(head["predicted"][rows].sum() / n / head.d_head) if n else math.nan


def _ratio(observed, predicted):
    if predicted == 0:
        return math.nan if observed == 0 or math.isnan(observed) else math.inf
    return observed / predicted


def _cosine(head):
    rows = head.seeing(1)
    n = head["n_visible"][rows]
    return float((n * head["cosine"][rows]).sum() / n.sum()) if n.numel() else math.nan


_MASS = ("n_visible", "mass")
_SCORE = ("n_visible", "score_mean", "score_var")
_RAW = ("n_visible", "raw_mean", "raw_var")

# {id: (row fields, function of a Head)}, in the registry's order.
STATISTICS = {
    "entropy_relative": ((*_MASS, "entropy"), _entropy_relative),
    "entropy": ((*_MASS, "entropy"), _entropy),
    "effective_keys": ((*_MASS, "entropy"), _effective_keys),
    "max_probability": (("n_visible", "top1"), lambda head: _mean(head["top1"][head.seeing(2)])),
    "saturated_rows": ((*_MASS, "sum_p2"), _saturated),
    "sink_mass": (_MASS, _sink_mass),
    "first_key_mass": (("n_visible", "first_mass"), lambda head: _mean(head["first_mass"][head.seeing(1)])),
    "previous_mass": (("n_visible", "previous_mass", "has_previous"), _previous),
    "diagonal_mass": (("n_visible", "diagonal_mass"), _diagonal),
    "mean_distance": (("n_visible", "distance"), _distance),
    "score_mean": (_SCORE, lambda head: _pooled(head, "score_mean", "score_var")[0]),
    "score_std": (_SCORE, lambda head: math.sqrt(_pooled(head, "score_mean", "score_var")[1])),
    "score_min": (("n_visible", "score_min"), lambda head: _extreme(head, "score_min", False)),
    "score_max": (("n_visible", "score_max"), lambda head: _extreme(head, "score_max", True)),
    "score_row_norm": (("n_visible", "score_norm"), lambda head: _mean(head["score_norm"][head.seeing(1)])),
    "score_row_variance": (("n_visible", "score_var"), lambda head: _mean(head["score_var"][head.seeing(2)])),
    "max_abs_score": (("n_visible", "raw_abs"), lambda head: _extreme(head, "raw_abs", True)),
    "score_var_observed": (_RAW, lambda head: _pooled(head, "raw_mean", "raw_var")[1]),
    "score_var_predicted": (("n_visible", "predicted"), _predicted),
    "score_var_ratio": ((*_RAW, "predicted"),
                        lambda head: _ratio(_pooled(head, "raw_mean", "raw_var")[1], _predicted(head))),
    "q_norm": (("q_norm",), lambda head: _mean(head["q_norm"])),
    "k_norm": ((), lambda head: head.k_norm),
    "qk_cosine": (("n_visible", "cosine"), _cosine),
}

# What is recorded when nothing else is asked for.
DEFAULT = ("entropy_relative", "entropy", "max_probability", "saturated_rows", "first_key_mass", "previous_mass", "score_std",
           "score_max", "max_abs_score", "q_norm", "k_norm")


def chosen(statistics):
    """The ids that are asked for, in the registry's order."""
    if statistics is None:
        statistics = DEFAULT
    elif statistics == "all":
        statistics = STATISTICS
    elif isinstance(statistics, str):
        statistics = [statistics]
    unknown = [name for name in statistics if name not in STATISTICS]
    if unknown:
        raise ValueError(f"no statistic is called {unknown[0]!r}; there are {', '.join(STATISTICS)}")
    return [name for name in STATISTICS if name in set(statistics)]


def fields_of(statistics):
    """The fields of rows that these statistics look at."""
    return sorted({field for name in statistics for field in STATISTICS[name][0]})


def of_head(statistics, head):
    return {name: STATISTICS[name][1](head) for name in statistics}

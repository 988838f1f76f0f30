"""The statistics of a head, by the ids and definitions of attnscope's registry, from summaries of its rows."""

import math

import torch

# Row sums this near to 1 are 1 as bf16 rounds it; others are those of no distribution over keys.
MASS_TOLERANCE = 0.03
# Below this trace of the softmax Jacobian a row passes almost no gradient to its scores.
SATURATED_TRACE = 1e-3


class Heads:
    """Row summaries of the heads of one attention in float64, and what the statistics look at beside them.

    rows       {field: [head, row]}, real queries only
    k_norm     the mean of ‖k‖ of each head over keys that are no padding: [head]
    d_head     the width of queries and keys
    is_cross   keys are tokens of another sequence
    has_sink   a learned sink takes what is missing from 1 in the sum of a row
    has_padding   some keys are padding
    has_documents   some sequence holds several documents
    outputs    the mean of what each head writes, as a norm: [head]; None where its projection was not seen
    """

    def __init__(self, rows, k_norm, d_head, is_cross, has_sink, has_padding=False, outputs=None, has_documents=False):
        self.rows, self.k_norm, self.d_head, self.is_cross, self.has_sink = rows, k_norm, d_head, is_cross, has_sink
        self.has_padding, self.outputs, self.has_documents = has_padding, outputs, has_documents

    def __getitem__(self, field):
        return self.rows[field]

    @property
    def nothing(self):
        return torch.full_like(self.k_norm, math.nan)

    def seeing(self, n):
        return self["n_visible"] >= n

    def distributions(self, n):
        """Rows that see n keys; none of a head where some row is no distribution over keys."""
        mass = self["mass"]
        counted = self.seeing(1) & (mass != 0)
        too_little = (mass < 1 - MASS_TOLERANCE) & (not self.has_sink)
        fits = torch.isnan(mass) | ((mass <= 1 + MASS_TOLERANCE) & ~too_little)
        has_none = (counted & ~fits).any(1, keepdim=True)
        return self.seeing(n) & (mass != 0) & ~has_none


def _mean(values, rows):
    """The mean of each head over some rows; NaN where there is none, or where one is NaN."""
    return values.masked_fill(~rows, 0.0).sum(1) / rows.sum(1)


def _entropy(heads):
    return _mean(heads["entropy"], heads.distributions(1))


def _entropy_relative(heads):
    return _mean(heads["entropy"] / heads["n_visible"].log(), heads.distributions(2))


def _effective_keys(heads):
    entropy, mass = heads["entropy"], heads["mass"]
    if heads.has_sink:
        entropy = (entropy / mass + mass.log()).clamp(min=0)
    return _mean(entropy.exp(), heads.distributions(1))


def _saturated(heads):
    trace = heads["mass"] - heads["sum_p2"]
    return _mean((trace < SATURATED_TRACE).to(trace.dtype).masked_fill(torch.isnan(trace), math.nan), heads.distributions(2))


def _sink_mass(heads):
    return _mean(1 - heads["mass"], heads.seeing(1)) if heads.has_sink else heads.nothing


def _previous(heads):
    rows = heads.seeing(1) & ~torch.isnan(heads["has_previous"])
    return heads.nothing if heads.is_cross else _mean(heads["previous_mass"], rows)


def _pad_mass(heads):
    return _mean(heads["pad_mass"], heads.seeing(1)) if heads.has_padding else None


def _document_mass(heads):
    return _mean(heads["document_mass"], heads.seeing(1)) if heads.has_documents and not heads.is_cross else None


def _output_norm(heads):
    return None if heads.outputs is None else heads.outputs.cpu().to(torch.float64)


def _of_own_sequence(field):
    def statistic(heads):
        return heads.nothing if heads.is_cross else _mean(heads[field], heads.seeing(1))

    return statistic


def _extreme(field, largest):
    """Extremes ignore NaN when they are gathered; a row that holds one has no honest extreme."""
    def statistic(heads):
        rows = heads.seeing(1)
        if not rows.shape[1]:
            return heads.nothing
        found = heads[field].masked_fill(~rows, -math.inf if largest else math.inf)
        found = found.amax(1) if largest else found.amin(1)  # NaN where any is
        return found.masked_fill(~rows.any(1), math.nan)

    return statistic


def _pooled(heads, mean, variance):
    """Mean and population variance over all visible pairs, put together from those of the rows (Chan et al. 1979)."""
    rows = heads.seeing(1)
    n = heads["n_visible"].masked_fill(~rows, 0.0)
    means, variances = heads[mean].masked_fill(~rows, 0.0), heads[variance].masked_fill(~rows, 0.0)
    total = n.sum(1)
    overall = (n * means).sum(1) / total
    return overall, (n * (variances + (means - overall[:, None]).square())).sum(1) / total


def _predicted(heads):
    rows = heads.seeing(1)
    return heads["predicted"].masked_fill(~rows, 0.0).sum(1) / heads["n_visible"].sum(1) / heads.d_head


def _cosine(heads):
    rows = heads.seeing(1)
    n = heads["n_visible"]
    return (n * heads["cosine"]).masked_fill(~rows, 0.0).sum(1) / n.sum(1)


_MASS = ("n_visible", "mass")
_SCORE = ("n_visible", "score_mean", "score_var")
_RAW = ("n_visible", "raw_mean", "raw_var")

# {id: (row fields, function of Heads)}, in the registry's order.
STATISTICS = {
    "entropy_relative": ((*_MASS, "entropy"), _entropy_relative),
    "entropy": ((*_MASS, "entropy"), _entropy),
    "effective_keys": ((*_MASS, "entropy"), _effective_keys),
    "max_probability": (("n_visible", "top1"), lambda heads: _mean(heads["top1"], heads.seeing(2))),
    "saturated_rows": ((*_MASS, "sum_p2"), _saturated),
    "sink_mass": (_MASS, _sink_mass),
    "first_key_mass": (("n_visible", "first_mass"), lambda heads: _mean(heads["first_mass"], heads.seeing(1))),
    "previous_mass": (("n_visible", "previous_mass", "has_previous"), _previous),
    "diagonal_mass": (("n_visible", "diagonal_mass"), _of_own_sequence("diagonal_mass")),
    "mean_distance": (("n_visible", "distance"), _of_own_sequence("distance")),
    "later_mass": (("n_visible", "later_mass"), _of_own_sequence("later_mass")),
    "pad_mass": (("n_visible", "pad_mass"), _pad_mass),
    "document_mass": (("n_visible", "document_mass"), _document_mass),
    "score_mean": (_SCORE, lambda heads: _pooled(heads, "score_mean", "score_var")[0]),
    "score_std": (_SCORE, lambda heads: _pooled(heads, "score_mean", "score_var")[1].sqrt()),
    "score_min": (("n_visible", "score_min"), _extreme("score_min", False)),
    "score_max": (("n_visible", "score_max"), _extreme("score_max", True)),
    "score_row_norm": (("n_visible", "score_norm"), lambda heads: _mean(heads["score_norm"], heads.seeing(1))),
    "score_row_variance": (_SCORE, lambda heads: _mean(heads["score_var"], heads.seeing(2))),
    "max_abs_score": (("n_visible", "raw_abs"), _extreme("raw_abs", True)),
    "score_var_observed": (_RAW, lambda heads: _pooled(heads, "raw_mean", "raw_var")[1]),
    "score_var_predicted": (("n_visible", "predicted"), _predicted),
    "score_var_ratio": ((*_RAW, "predicted"),
                        lambda heads: _pooled(heads, "raw_mean", "raw_var")[1] / _predicted(heads)),
    "q_norm": (("q_norm",), lambda heads: heads["q_norm"].mean(1)),
    "k_norm": ((), lambda heads: heads.k_norm),
    "qk_cosine": (("n_visible", "cosine"), _cosine),
    "head_output_norm": ((), _output_norm),
    "resid_spread": ((), lambda heads: None),  # see outputs.spread_of
}

# Statistics of whole layers: one value each.
OF_LAYERS = ("resid_spread",)

# What is recorded when nothing else is asked for.
DEFAULT = ("entropy_relative", "entropy", "max_probability", "saturated_rows", "first_key_mass", "previous_mass", "mean_distance",
           "later_mass", "pad_mass", "document_mass", "score_std", "score_max", "max_abs_score", "q_norm", "k_norm",
           "head_output_norm", "resid_spread")


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


def of_heads(statistics, heads):
    """{id: [per head]}; None for what this pass does not have."""
    found = {name: STATISTICS[name][1](heads) for name in statistics}
    return {name: [None] * len(heads.k_norm) if values is None else values.tolist() for name, values in found.items()}

"""Finds out what a function is from its values: an affine map, a norm, an activation, a softmax of scaled scores.

Every answer is checked on further random inputs in double precision, and is None where it does not reproduce them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

_CLOSE = 1e-7  # relative; parameters are float32, and everything here is computed in double


def random(*shape, seed=0):
    """Standard normal values in double precision that are the same in every run."""
    generator = torch.Generator().manual_seed(1234 + seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(a, b, tolerance=_CLOSE):
    """Whether two tensors agree up to rounding, relative to the larger of them."""
    if a.shape != b.shape or not bool(torch.isfinite(a).all()) or not bool(torch.isfinite(b).all()):
        return False
    if not a.numel():
        return True
    scale = max(float(a.abs().max()), float(b.abs().max()), 1e-30)
    return float((a - b).abs().max()) <= tolerance * scale


def affine(f, n_rows, d_in):
    """(weight [out, in], bias [out]) of a function of rows that treats every row alike; None where it is not affine."""
    zero = f(torch.zeros(n_rows, d_in, dtype=torch.float64))
    bias = zero[0]
    if not bool(torch.isfinite(zero).all()):
        return None
    first, second = random(n_rows, d_in), random(n_rows, d_in, seed=1)
    a, b, both = f(first) - bias, f(second) - bias, f(first + 2 * second) - bias
    scale = max(float(a.abs().max()), float(b.abs().max()), float(bias.abs().max()), 1e-30)
    if float((zero - bias).abs().max()) > _CLOSE * scale or float((a + 2 * b - both).abs().max()) > _CLOSE * scale:
        return None
    columns = []
    for start in range(0, d_in, n_rows):
        rows = torch.zeros(n_rows, d_in, dtype=torch.float64)
        n = min(n_rows, d_in - start)
        rows[torch.arange(n), start + torch.arange(n)] = 1
        columns.append((f(rows) - bias)[:n])
    weight = torch.cat(columns).T.contiguous()
    weight[weight.abs() < 1e-14 * scale] = 0  # what rounding leaves of a zero
    if float((first @ weight.T - a).abs().max()) > _CLOSE * scale:
        return None
    return weight, bias.clone()


class Norm:
    """A norm of rows: its kind, its stored vectors and its epsilon; of a tanh in its place, what it multiplies values by."""

    def __init__(self, kind, gain, bias, eps, note=None, alpha=None):
        self.kind, self.gain, self.bias, self.eps, self.note, self.alpha = kind, gain, bias, eps, note, alpha
        self.is_per_head = False  # the gain holds one for each head, and each head is normed by itself

    def __call__(self, x):
        if self.kind == "layer":
            x = x - x.mean(-1, keepdim=True)
        y = torch.tanh(self.alpha * x) if self.alpha is not None else x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)
        y = y if self.gain is None else y * self.gain
        return y if self.bias is None else y + self.bias


def norm(f, n_rows, width, seen=None):
    """The norm that a function of rows is; None where it is none. `seen` are rows that it was given."""
    if width < 2:
        return None
    x = 3 * random(n_rows, width, seed=2) + 0.7
    draws = [x] + [3 * random(n_rows, width, seed=3 + i) + 0.7 for i in range(max(1, 8 // n_rows))]
    rows = torch.cat(draws) * 1e6
    ys = torch.cat([f(draw * 1e6) for draw in draws])
    if ys.shape != rows.shape or not bool(torch.isfinite(ys).all()):
        return None
    for kind in ("layer", "rms"):
        hat = rows - rows.mean(-1, keepdim=True) if kind == "layer" else rows
        hat = hat / torch.sqrt((hat * hat).mean(-1, keepdim=True))
        centre, mean = hat - hat.mean(0), ys.mean(0)
        gain = (centre * (ys - mean)).sum(0) / (centre * centre).sum(0).clamp_min(1e-30)
        bias = mean - gain * hat.mean(0)
        if not close(hat * gain + bias, ys, 1e-6):
            continue
        if float(gain.abs().max()) < 1e-12:
            return None
        bias = None if float(bias.abs().max()) < 1e-8 * float(gain.abs().max()) else bias
        return _with_eps(f, kind, gain, bias, x, seen)
    return _tanh(f, draws, ys)


def _tanh(f, draws, far):
    """The tanh of every value times one number, then gain and bias, where a function of rows is that and more than a tanh alone; None
    where it is not. `far` is what it gives of very large values."""
    x = draws[0]
    bias = f(torch.zeros_like(x))[0]
    ends = far[:len(x)] - bias
    if not close(ends.abs(), ends[:1].abs().expand_as(ends), 1e-9) or float(ends.abs().min()) < 1e-12:
        return None
    gain = (ends * torch.sign(x))[0]
    near = 0.1 * x
    alpha = float((torch.atanh(((f(near) - bias) / gain).clamp(-1 + 1e-12, 1 - 1e-12)) / near).median())
    # It was far from the end at small values, and may not have been at large ones.
    found = Norm("tanh", gain, bias, 0.0, alpha=float(torch.tensor(alpha, dtype=torch.float32)))
    if not 0 < alpha < 1e4 or not all(close(found(rows), f(rows), 1e-7) for rows in (near, x, 1e-2 * x)):
        return None
    found.gain = None if bool((gain - 1).abs().max() < 1e-9) else gain
    found.bias = None if float(bias.abs().max()) < 1e-12 else bias
    return None if alpha == 1 and found.gain is None and found.bias is None else found


def _with_eps(f, kind, gain, bias, x, seen):
    """The norm with its epsilon, which shows on small rows."""
    n = x.shape[-1]

    def divisor(rows):
        y = f(rows)
        y = y if bias is None else y - bias
        hat = (rows - rows.mean(-1, keepdim=True) if kind == "layer" else rows) * gain
        return 1 / ((hat * y).sum(-1) / (hat * hat).sum(-1))

    def deviation(rows):
        hat = rows - rows.mean(-1, keepdim=True) if kind == "layer" else rows
        return torch.sqrt((hat * hat).mean(-1))

    small, tiny = x * 1e-3, x * 1e-5
    eps = float((divisor(small) ** 2 - deviation(small) ** 2).median())
    eps = max(0.0, _round(eps, 3)) if abs(eps) > 1e-16 else 0.0
    found = Norm(kind, gain, bias, eps)
    at_one = torch.ones_like(gain) if bool((gain - 1).abs().max() < 1e-9) else None
    if all(close(found(rows), f(rows), 2e-4) for rows in (x, small)) and close(found(x), f(x), 1e-7):
        found.gain = None if at_one is not None else gain
        return found
    # The deviation with n - 1 and an epsilon added to it: (x - mean) / (std + eps).
    added = float((divisor(tiny) - deviation(tiny)).median())
    at = deviation(seen).median() if seen is not None else torch.tensor(1.0)
    found.eps = float((at + added) ** 2 - at ** 2) if added > 0 else 0.0
    found.note = (f"the norm adds {_round(added * math.sqrt(n / (n - 1)), 3):g} to the deviation, not to the variance: "
                  "norm_eps stands for it at the sizes of this text")
    rows = seen if seen is not None else x
    return found if close(found(rows), f(rows), 1e-4) else None


def _round(x, digits):
    return float(f"{x:.{digits - 1}e}") if x else 0.0


_ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu2": lambda x: F.relu(x) ** 2,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "leaky_relu": F.leaky_relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}


def activation(x, y):
    """The name of the activation that gives y of x; None where attnscope has none."""
    for name, function in _ACTIVATIONS.items():
        if close(function(x), y, 1e-6):
            return name
    return None


def function_of(name):
    """The activation of a name."""
    return _ACTIVATIONS[name]


AXES = {"keys": 2, "queries": 1, "heads": 0}  # of [head, query, key]


class Rows:
    """What makes a pattern of scores: scale, what is added, what is hidden, and the axis of the softmax."""

    def __init__(self, axis, scale, bias, visible, softcap):
        self.axis, self.scale, self.bias, self.visible, self.softcap = axis, scale, bias, visible, softcap
        self.sinks = None  # of each head: the score of what takes probability and is no key
        self.top_keys = None  # how many keys of a query count, those of the largest scores


def softmax(f, shape):
    """(Rows, None) of the function from products [head, query, key] to the pattern; (None, why) where it is no softmax."""
    n_heads = shape[0]
    zero = f(torch.zeros(shape, dtype=torch.float64))
    if not bool(torch.isfinite(zero).all()):
        return None, "some queries see no key: their row of the pattern is not a number"
    axis = next((name for name, dim in AXES.items()
                 if float((zero.sum(dim) - 1).abs().max()) < 1e-6 and not (dim == 0 and n_heads == 1)), None)
    if axis is None:
        rows = _with_sinks(f, shape, zero)
        return rows, None if rows is not None else "rows of the pattern do not sum to 1: no softmax, or a mask or factor after it"
    dim = AXES[axis]
    if axis == "heads" and bool(((f(random(*shape, seed=21)) - zero).abs().amax(0) < 1e-12).any()):
        return None, "the softmax runs over heads, and gives keys that a mask hides the same share in each"
    visible = zero > 1e-25
    log = torch.where(visible, zero.clamp_min(1e-300).log(), torch.zeros_like(zero))

    def centred(x):  # without what a softmax does not see
        count = visible.sum(dim, keepdim=True).clamp_min(1)
        return torch.where(visible, x - torch.where(visible, x, torch.zeros_like(x)).sum(dim, keepdim=True) / count,
                           torch.zeros_like(x))

    def response(scores):
        y = f(scores).clamp_min(1e-300).log()
        return centred(torch.where(visible, y - log, torch.zeros_like(y)))

    probe = random(*shape, seed=20)
    small = 1e-3 * probe
    got, given = response(small), centred(small)
    size = float((given * given).sum())
    if not size:  # every query sees one key
        return Rows(axis, None, centred(log), visible, None), None
    scale = float((got * given).sum()) / size
    at_scale = f(torch.where(visible, probe, torch.zeros_like(probe)) * (2.0 / max(abs(scale), 1e-30)))
    expected = _softmax(log, scale * probe * (2.0 / max(abs(scale), 1e-30)), visible, dim)
    if not close(expected, at_scale, 1e-7):
        far = response(probe * 1e9)
        sign = centred(torch.sign(probe))
        size = float((sign * sign).sum())
        cap = _round(float((far * sign).sum()) / size, 6) if size else 0.0
        if cap > 0:
            capped = cap * torch.tanh(scale * probe * (2.0 / abs(scale)) / cap)
            if close(_softmax(log, capped, visible, dim), at_scale, 1e-5):
                return Rows(axis, scale, centred(log), visible, cap), None
        largest = _of_largest(f, shape) if axis == "keys" else None
        if largest is not None:
            return largest, None
        return None, "the pattern is not a softmax of scaled scores: a mask multiplies them, or something else changes them"
    return Rows(axis, scale, centred(log), visible, None), None


def _with_sinks(f, shape, zero):
    """The Rows of a pattern without the column of a learned sink; None where it is not one."""
    sums = zero.sum(2, keepdim=True)
    if not bool(((sums > 0) & (sums < 1)).all()):
        return None

    def whole(scores):
        y = f(scores)
        return y / y.sum(2, keepdim=True)

    rows, _ = softmax(whole, shape)
    if rows is None or rows.scale is None or rows.axis != "keys" or float(rows.bias.abs().max()) > 1e-9:
        return None
    sinks = rows.visible.sum(2, keepdim=True).double().log() + ((1 - sums) / sums).log()
    probe = random(*shape, seed=21)
    scores = rows.scale * probe
    scores = scores if rows.softcap is None else rows.softcap * torch.tanh(scores / rows.softcap)
    total = (scores.exp() * rows.visible).sum(2, keepdim=True)
    is_steady = float((sinks - sinks[:, :1]).abs().max()) <= 1e-9
    if not is_steady or not close(f(probe).sum(2, keepdim=True), total / (total + sinks.exp()), 1e-9):
        return None
    rows.sinks = sinks[:, 0, 0]
    return rows


def _of_largest(f, shape):
    """The Rows of a softmax over the keys of each query that have the largest scores; None where it is none."""
    visible = torch.stack([f(60.0 * (torch.arange(shape[2]) == key).expand(shape).double())[..., key] > 1e-25
                           for key in range(shape[2])], -1)
    probes = [random(*shape, seed=seed) for seed in (23, 24)]
    kept = [f(probe) > 0 for probe in probes]
    n_kept = int(kept[0].sum(2).max())
    if n_kept < 2:
        return None

    def expected(scores, scale):
        masked = torch.where(visible, scores, torch.full_like(scores, -math.inf))
        least = masked.topk(min(n_kept, shape[2]), -1).values[..., -1:]
        return torch.softmax(torch.where(masked >= least, scale * masked, torch.full_like(scores, -math.inf)), -1)

    # Of two keys that count, the logarithms of their shares differ as their scores do.
    share = f(probes[0])
    of_two = torch.where(share > 0, probes[0], torch.full_like(share, -math.inf)).topk(2, -1).indices
    logs, scores = (torch.gather(x, 2, of_two) for x in (share.clamp_min(1e-300).log(), probes[0]))
    rows = torch.gather(share, 2, of_two).amin(2) > 0
    scale = float(((logs[..., 0] - logs[..., 1]) / (scores[..., 0] - scores[..., 1]))[rows].median())
    if not scale > 0 or not all(close(expected(probe, scale), f(probe), 1e-7) for probe in probes):
        return None
    found = Rows("keys", scale, torch.zeros(shape, dtype=torch.float64), visible, None)
    found.top_keys = n_kept
    return found


def _softmax(log, scores, visible, dim):
    total = torch.where(visible, log + scores, torch.full_like(log, -math.inf))
    return torch.softmax(total, dim).nan_to_num(0.0)

"""What comes of attention: how much each head writes into the residual, and how far tokens stand apart after its block."""

import torch
from torch import nn

# A norm between attention and a projection: what is projected is no longer the heads side by side.
_NORMS = {"layer_norm", "rms_norm", "group_norm", "batch_norm", "rsqrt"}
# Unless all rows are looked at: at most so many tokens are projected head by head, and so many of so many sequences compared.
N_TOKENS, N_POSITIONS, N_SEQUENCES = 32, 512, 4


class Outputs:
    """Follows one pass from each attention to the projection of its heads, and to the end of the modules around it."""

    def __init__(self, statistics, takes_all):
        self.takes_all = takes_all
        self.wants_heads, self.wants_blocks = "head_output_norm" in statistics, "resid_spread" in statistics
        self.waiting = []  # attentions whose projection is to come

    def found(self, attention, measured, frames):
        """An attention was seen, in the modules that are running."""
        measured.output_norms, measured.blocks, measured.real = None, [], attention.real_queries
        measured.value_width = getattr(attention, "value_width", attention.d_head)
        n_packed = attention.n_queries if hasattr(attention, "of_q") else None
        measured.n_tokens, measured.n_sequences = n_packed or attention.n_sequences * attention.n_queries, attention.n_sequences
        if self.wants_heads:
            # heads of a list of modules are projected together
            if self.waiting and _parent(self.waiting[-1].path) != _parent(measured.path):
                self.waiting = []
            self.waiting.append(measured)
        if self.wants_blocks:
            for frame in frames:
                frame.attentions = [*getattr(frame, "attentions", ()), measured]

    def after(self, name, args, kwargs, path, module):
        """A function was called; the first product with a matrix that fits projects the heads that wait for it."""
        if not self.waiting:
            return
        if name in _NORMS:
            self.waiting = []
            return
        given = _product(name, args, kwargs)
        if given is None or hasattr(given[1], "to_local"):
            return
        x, weight = given  # [..., in], [in, out]
        n_heads = sum(measured.n_heads for measured in self.waiting)
        first = self.waiting[0]
        width = sum(measured.n_heads * measured.value_width for measured in self.waiting)
        if x.shape[-1] != width or width % n_heads or x.numel() // width != first.n_tokens or not _is_near(path, first.path):
            return
        flat = x.detach().reshape(-1, width)
        if first.real is not None:
            # nn.MultiheadAttention projects position by position, others sequence by sequence
            at_position = isinstance(module, nn.MultiheadAttention) if x.dim() == 2 else tuple(x.shape[:2]) != tuple(first.real.shape)
            flat = flat[(first.real.T if at_position else first.real).reshape(-1)]
        chosen = _spaced(flat.shape[0], flat.shape[0] if self.takes_all else N_TOKENS, flat.device)
        parts = flat[chosen].float().reshape(len(chosen), n_heads, -1).transpose(0, 1)  # [head, token, d]
        matrices = weight.detach().float().reshape(n_heads, -1, weight.shape[1])  # [head, d, out]
        norms = (parts @ matrices).norm(dim=-1).mean(-1)  # [head]
        begin = 0
        for measured in self.waiting:
            measured.output_norms = norms[begin:begin + measured.n_heads]
            begin += measured.n_heads
        self.waiting = []

    def left(self, frame, output, mask_of):
        """A module is over: if attention ran in it and it gives what it was given, that is a residual after a block."""
        attentions = getattr(frame, "attentions", None)
        if not attentions:
            return
        x = output[0] if isinstance(output, (tuple, list)) and output else output
        if all(measured.path == frame.path for measured in attentions):
            return  # attention alone: what it gives is no residual yet
        if not isinstance(x, torch.Tensor) or hasattr(x, "to_local") or x.dim() != 3 or tuple(x.shape) not in frame.shapes:
            return
        x, n = x.detach(), attentions[0].n_sequences
        if x.shape[0] != n and x.shape[1] == n:
            x = x.transpose(0, 1)
        real = mask_of(x.shape[0], x.shape[1])
        if not self.takes_all:
            places = _spaced(x.shape[1], N_POSITIONS, x.device)
            x, real = x[:N_SEQUENCES][:, places], None if real is None else real[:N_SEQUENCES].to(x.device)[:, places]
        spread = _spread(x.float(), real)
        for measured in attentions:
            measured.blocks.append((attentions, spread))


def spread_of(layer, layers):
    """The spread after the outermost module that holds this layer and no other one of its stack; None where there is none, and in
    cross-attention, after which a block goes on."""
    if layer.stack == "cross":
        return None
    of = {id(member): other for other in layers for member in other.members}
    for attentions, spread in reversed(layer.members[0].blocks):
        inside = {id(of[id(one)]): of[id(one)] for one in attentions if id(one) in of}.values()
        if len({other.stack for other in inside}) == len(inside):
            return float(spread)
    return None


def _spread(x, real):
    """‖X − 1x̄ᵀ‖ / ‖X‖ over the real tokens of a sequence, in the mean of the sequences."""
    weight = torch.ones(x.shape[:2], device=x.device) if real is None else real.to(x.device).float()
    x = x * weight[..., None]
    mean = x.sum(1, keepdim=True) / weight.sum(1)[:, None, None]
    apart = ((x - mean) * weight[..., None]).square().sum((1, 2))
    return (apart / x.square().sum((1, 2))).sqrt().mean()


def _spaced(n, most, device):
    """At most so many of n places, spread evenly."""
    return torch.linspace(0, n - 1, min(most, n), device=device, dtype=torch.float64).round().long()


def _product(name, args, kwargs):
    """(x, weight [in, out]) of a product with a matrix; None for any other function."""
    if name == "linear":
        x, weight = kwargs.get("input", args[0] if args else None), kwargs.get("weight", args[1] if len(args) > 1 else None)
        weight = weight.T if isinstance(weight, torch.Tensor) and weight.dim() == 2 else None
    elif name == "addmm" and len(args) == 3:
        x, weight = args[1:]
    elif name in ("matmul", "mm", "__matmul__") and len(args) == 2:
        x, weight = args
    else:
        return None
    fits = isinstance(x, torch.Tensor) and isinstance(weight, torch.Tensor) and weight.dim() == 2 and x.dim() >= 2
    return (x, weight) if fits and x.shape[-1] == weight.shape[0] and weight.shape[0] > 0 else None


def _parent(path):
    return path.rpartition(".")[0]


def _is_near(path, attention):
    """Whether a projection stands in the module of the attention, beside it, or in a module beside it."""
    around = _parent(_parent(path))
    return path == attention or path.startswith(attention + ".") or not around or attention.startswith(around + ".")

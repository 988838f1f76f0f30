"""Which positions are padding, from the masks that modules are given."""

import inspect
import re

import torch
from torch import nn

from . import _capture as seen

_TAKES_MASKS = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer,
                nn.TransformerDecoderLayer, nn.MultiheadAttention)
_DECODER = re.compile(r"decoder|tgt|trg|target")
_NO_PADDING = re.compile(r"label|type|position|segment|head|causal|future|loss|special|output")


class Padding:
    """Masks of [sequence, position], true for real tokens: those of a decoder, and the others."""

    def __init__(self):
        self.masks = {False: [], True: []}
        self.tokens = None

    def read(self, named):
        """The masks among the arguments of a module, by name."""
        ids = [value for name, value in named.items() if seen._is_ids(value) and value.dim() == 2 and "mask" not in name]
        if ids and self.tokens is None:
            self.tokens = ids[0].detach()
        for name, mask in named.items():
            if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or _NO_PADDING.search(name):
                continue
            if "mask" not in name and "pad" not in name and "valid" not in name:
                continue
            self.add(name, mask.detach())

    def add(self, name, mask):
        plain = re.sub(r"^(decoder|encoder|memory|src|tgt|trg)_", "", name)
        if plain in ("mask", "attn_mask") and mask.shape[0] == mask.shape[1]:
            return  # queries by keys
        tokens = self.tokens if self.tokens is not None and self.tokens.shape == mask.shape else None
        real = seen._padding_mask(plain, mask, tokens, tuple(mask.shape))
        if real is None:
            return
        kept = self.masks[bool(_DECODER.search(name))]
        if not any(other.shape == real.shape for other in kept):
            kept.append(real.to(torch.bool))

    def find(self, n_sequences, n_positions, of_decoder):
        for masks in (self.masks[of_decoder], self.masks[not of_decoder]):
            for mask in masks:
                if tuple(mask.shape) == (n_sequences, n_positions):
                    return mask
        return None

    def give(self, attention):
        """Tells an attention which of its queries and keys are padding."""
        n = attention.n_sequences
        is_cross = bool(seen.CROSS.search(attention.path)) or attention.path.endswith("multihead_attn")
        in_decoder = "decoder" in attention.path.lower() and not is_cross
        keys = self.find(n, attention.n_keys, in_decoder)
        queries = self.find(n, attention.n_queries, is_cross or in_decoder)
        if queries is not None and is_cross and not any(queries is m for m in self.masks[True]):
            queries = None  # the keys' own mask says nothing of queries that are other tokens
        shown = getattr(attention, "visible_of_first_head", None)
        if keys is None and shown is not None and shown.dim() == 3 and shown.shape[1:] == (attention.n_queries, attention.n_keys):
            seen_keys = shown.any(1).expand(n, -1)  # a key that no query sees
            if not bool(seen_keys.all()):
                keys = seen_keys
                if attention.n_queries == attention.n_keys and queries is None and not is_cross:
                    queries = keys
        device = attention.q.device
        if keys is not None and not bool(keys.all()):
            attention.real_keys = keys.to(device)
        if queries is not None and not bool(queries.all()):
            attention.real_queries = queries.to(device)


def arguments(module, path, args, kwargs):
    """The arguments of a module by name: also those given by place, of the model itself and of modules that take masks so."""
    named = dict(kwargs)
    if args and (not path or isinstance(module, _TAKES_MASKS)):
        named.update(_positional(module, args, kwargs))
    for inner in [value for value in named.values() if isinstance(value, dict)]:
        named.update(inner)
    return named


def _positional(module, args, kwargs):
    """Arguments given by place, with their names."""
    try:
        return dict(inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {}

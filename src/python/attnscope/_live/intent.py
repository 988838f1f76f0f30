"""What a model is meant to be, as far as its code says so without being run."""

from __future__ import annotations

import re

import torch

from .._capture.words import CROSS

NAMES = re.compile(r"gpt|llama|causal|decoderonly|decoder_only|autoregressive", re.IGNORECASE)
TWO_SIDED = re.compile(r"encoder|bert|vit|vision|seq2seq", re.IGNORECASE)
# Parts that read pictures or sound beside a text, whose mask is not theirs.
OTHER_INPUT = re.compile(r"vision|visual|image|picture|audio|acoustic", re.IGNORECASE)


def intended_mask(model, absent=()):
    """("causal", why) of a model that holds a causal mask, or one of whose classes is called after a causal model; (None, None) otherwise.

    An encoder, or cross-attention, says nothing: not every attention of such a model has the same mask. Nor does a name where
    masks are `absent` from the call: the code that trains the model gives them.
    """
    paths = [path for path, _ in model.named_modules()]
    if any(CROSS.search(path) or TWO_SIDED.search(path) or OTHER_INPUT.search(path) for path in paths):
        return None, None
    if any(OTHER_INPUT.search(type(module).__name__) for module in model.modules()):
        return None, None
    for name, buffer in model.named_buffers():
        if _is_causal(buffer):
            return "causal", f"causal by the mask that it holds ({name})"
    if absent:
        return None, None
    kinds = [type(module).__name__ for module in model.modules()]
    if TWO_SIDED.search(kinds[0]):
        return None, None
    named = next((kind for kind in kinds if NAMES.search(kind) and not TWO_SIDED.search(kind)), None)
    return ("causal", f"causal by its name ({named})") if named else (None, None)


def _is_causal(buffer):
    """Whether a buffer is a square mask that hides, or shows, exactly what lies above the diagonal."""
    if buffer.dim() < 2 or buffer.shape[-1] != buffer.shape[-2] or buffer.shape[-1] < 4 or buffer.is_meta:
        return False
    square = buffer.reshape(-1, *buffer.shape[-2:])[0][:64, :64]
    above = torch.ones_like(square, dtype=torch.bool).triu(1)
    return len(torch.unique(square)) == 2 and len(torch.unique(square[above])) == 1 and len(torch.unique(square[~above])) == 1

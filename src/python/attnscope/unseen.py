"""Names modules that look like attention and in which none was seen."""

import re

_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
# Parts of attention, and what only bears its name.
_NO_ATTENTION = re.compile(r"norm|mask|bias|pool|embed|dropout|rotary|output|intermediate|proj|gate|softmax", re.IGNORECASE)
# Packages whose attention may have no weights of its own.
_KERNELS = ("transformer_engine", "xformers", "flash_attn", "megatron")
MOST = 200


def unseen(ran, paths):
    """[`path (class)`] of the outermost modules that ran and look like attention, and hold none of the attentions at `paths`.

    ran   {path: module}
    """
    found = []
    for path, module in ran.items():
        inside = path + "."
        if not _looks_like_attention(module) or any(path.startswith(outer + ".") for outer, _ in found):
            continue
        if any(other == path or other.startswith(inside) or path.startswith(other + ".") for other in paths):
            continue
        found.append((path, type(module).__name__))
    return [f"{path} ({name})" for path, name in found[:MOST]]


def _looks_like_attention(module):
    name = type(module).__name__
    if not _ATTENTION.search(name) or _NO_ATTENTION.search(name):
        return False
    package = type(module).__module__.partition(".")[0]
    return package in _KERNELS or any(parameter.dim() > 1 for parameter in module.parameters())

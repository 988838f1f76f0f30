"""Reads the arguments of attention kernels: what they compute is known from their arguments, not seen."""

import inspect
import math

import torch

from .attention import Attention, Packed


def _lower(query, n_queries, n_keys, aligned_right):
    """The last key that a causal mask shows to each query."""
    return query + (n_keys - n_queries if aligned_right else 0)


def hide(scores, positions, n_queries, n_keys, *, causal=False, aligned_right=False, window=(-1, -1)):
    """Scores with -inf where a causal mask or a window hides a key. `positions`: [sequence, row]"""
    left, right = window
    if causal:
        right = 0 if right is None or right < 0 else min(right, 0)
    left = -1 if left is None else left
    right = -1 if right is None else right
    if left < 0 and right < 0:
        return scores
    keys = torch.arange(n_keys, device=scores.device)
    own = _lower(positions, n_queries, n_keys, aligned_right)[:, None, :, None]  # [sequence, 1, row, 1]
    hidden = torch.zeros((), dtype=torch.bool, device=scores.device)
    if right >= 0:
        hidden = hidden | (keys > own + right)
    if left >= 0:
        hidden = hidden | (keys < own - left)
    return scores.masked_fill(hidden, -math.inf)


def of_sdpa(path, names, args, kwargs, scale_of):
    """A call of scaled_dot_product_attention or of a kernel behind it; None for shapes that say nothing of heads."""
    given = dict(zip(names, args), **kwargs)
    query, key = given["query"], given["key"]
    if query.is_nested or not 2 <= query.dim() <= 5 or key.dim() != query.dim():
        return None
    mask = given.get("attn_mask", given.get("attn_bias"))
    is_causal, scale = bool(given.get("is_causal", False)), given.get("scale")
    if hasattr(mask, "_materialize"):  # torch.nn.attention.bias.CausalBias
        mask = mask._materialize(query.device)
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    q, k = _four(query.detach(), lead), _four(key.detach(), lead)
    n_queries, n_keys = q.shape[2], k.shape[2]
    if mask is not None:
        mask = mask.detach()
        if query.dim() != 4 or mask.dim() != 4:
            mask = _four(mask.expand(query.shape[:-1] + (n_keys,)), lead)

    def finish(raw, sequences, positions):
        scores = raw
        if mask is not None:
            # [sequence, head | 1, query | 1, key | 1]
            seen = mask[sequences if mask.shape[0] > 1 else torch.zeros_like(sequences)]
            if seen.shape[2] > 1:
                index = positions[:, None, :, None].expand(-1, seen.shape[1], -1, seen.shape[3])
                seen = seen.gather(2, index)
            scores = scores.masked_fill(~seen, -math.inf) if seen.dtype == torch.bool else scores + seen.float()
        # torch aligns its causal mask at the top left, also when keys outnumber queries.
        return hide(scores, positions, n_queries, n_keys, causal=is_causal)

    q_scale, k_scale = scale_of(query), scale_of(key)
    attention = Attention(path, q, k, scale * q_scale * k_scale, finish, q_scale, k_scale)
    attention.is_biased = mask is not None and mask.dtype != torch.bool
    attention.value_width = given["value"].shape[-1]
    attention.visible_of_first_head = None if mask is None else _shown(mask[:, 0])
    return attention


def _shown(mask):
    return mask if mask.dtype == torch.bool else mask > max(torch.finfo(mask.dtype).min / 2, -1e4)


def _four(x, lead):
    """[sequence, head, position, d] of a tensor of 2 to 5 dimensions; five are [batch, any, head, position, d]."""
    if x.dim() == 2:
        return x[None, None]
    if x.dim() == 3:
        return x[None]
    x = x.expand(*lead, *x.shape[-3:])
    return x.flatten(0, -4) if x.dim() > 4 else x


# ------------------------------------------------------------------------------------------------ flash_attn

# {name: how q and k are given}. Layouts: [batch, position, head, d], or [position, head, d] with cu_seqlens (varlen).
FLASH = {
    "flash_attn_func": "q k", "flash_attn_varlen_func": "q k", "flash_attn_with_kvcache": None,
    "flash_attn_kvpacked_func": "q kv", "flash_attn_varlen_kvpacked_func": "q kv",
    "flash_attn_qkvpacked_func": "qkv", "flash_attn_varlen_qkvpacked_func": "qkv",
}
_FLASH_ORDER = ("dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic")
_VARLEN_ORDER = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")


def of_flash(path, function, args, kwargs, scale_of):
    """The attentions of a call of flash_attn: one, or None where its arguments are not understood."""
    name = function.__name__
    packing = FLASH.get(name)
    if packing is None:
        return None
    given = _named(function, packing, "varlen" in name, args, kwargs)
    if packing == "qkv":
        q, k = given["qkv"].select(-3, 0), given["qkv"].select(-3, 1)
    elif packing == "q kv":
        q, k = given["q"], given["kv"].select(-3, 0)
    else:
        q, k = given["q"], given["k"]
    scale = given.get("softmax_scale")
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    q_scale, k_scale = (scale_of(given[packing]),) * 2 if packing == "qkv" else (scale_of(q), scale_of(k))
    options = {"causal": bool(given.get("causal", False)), "window": tuple(given.get("window_size") or (-1, -1)),
               "softcap": float(given.get("softcap") or 0.0), "slopes": given.get("alibi_slopes")}
    total = scale * q_scale * k_scale
    if "varlen" not in name:
        q, k = q.detach().transpose(1, 2), k.detach().transpose(1, 2)
        finish = _flash_finish(q.shape[2], k.shape[2], **options)
        return Attention(path, q, k, total, finish, q_scale, k_scale)
    of_q = given.get("cu_seqlens_q", given.get("cu_seqlens"))
    of_k = given.get("cu_seqlens_k", of_q)

    def finish_of(n_queries, n_keys):
        return _flash_finish(n_queries, n_keys, **options)

    return Packed(path, q.detach(), k.detach(), total, of_q.tolist(), of_k.tolist(), finish_of, q_scale, k_scale)


def _named(function, packing, is_varlen, args, kwargs):
    """The arguments by name. A signature that says nothing (*args) is taken to be flash_attn's."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
        given = dict(bound.arguments)
        for name, parameter in bound.signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(given.pop(name, {}))
            elif parameter.kind is parameter.VAR_POSITIONAL and name in given:
                raise TypeError
        return given
    except (TypeError, ValueError):
        first = ["qkv"] if packing == "qkv" else ["q", "kv"] if packing == "q kv" else ["q", "k", "v"]
        if is_varlen:
            first += ["cu_seqlens", "max_seqlen"] if packing == "qkv" else list(_VARLEN_ORDER)
        return dict(zip((*first, *_FLASH_ORDER), args), **kwargs)


def _flash_finish(n_queries, n_keys, causal, window, softcap, slopes):
    def finish(raw, sequences, positions):
        scores = softcap * torch.tanh(raw / softcap) if softcap else raw
        if slopes is not None:
            by_head = slopes.detach().float()
            by_head = by_head[None].expand(len(sequences), -1) if by_head.dim() == 1 else by_head[sequences]
            own = positions + n_keys - n_queries
            distance = (own[..., None] - torch.arange(n_keys, device=raw.device)).abs()  # [sequence, row, key]
            scores = scores - by_head[:, :, None, None] * distance[:, None]
        # flash_attn aligns at the bottom right.
        return hide(scores, positions, n_queries, n_keys, causal=causal, aligned_right=True, window=window)

    return finish


# ------------------------------------------------------------------------------------------- flex_attention


def of_flex(path, function, args, kwargs, scale_of):
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    query, key = given["query"], given["key"]
    score_mod, block_mask, scale = given.get("score_mod"), given.get("block_mask"), given.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    mask_mod = getattr(block_mask, "mask_mod", None)

    def finish(raw, sequences, positions):
        n_heads, n_keys = raw.shape[1], raw.shape[3]
        b = sequences[:, None, None, None]
        h = torch.arange(n_heads, device=raw.device)[None, :, None, None]
        q_idx = positions[:, None, :, None]
        kv_idx = torch.arange(n_keys, device=raw.device)[None, None, None]
        scores = raw if score_mod is None else score_mod(raw, b, h, q_idx, kv_idx)
        if mask_mod is not None:
            scores = torch.where(mask_mod(b, h, q_idx, kv_idx), scores, -math.inf)
        return scores.expand(raw.shape).float()

    q_scale, k_scale = scale_of(query), scale_of(key)
    attention = Attention(path, query.detach(), key.detach(), scale * q_scale * k_scale, finish, q_scale, k_scale)
    attention.is_biased = score_mod is not None
    return attention


# ---------------------------------------------------------------------------------------------- transformers


def of_interface(path, function, args, kwargs, scale_of):
    """A call of one of transformers' attention functions: query and key are [batch, head, position, d]."""
    module, query, key, mask, options = args
    scale = options.get("scaling")
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    is_causal = options.get("is_causal")
    is_causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal) and query.shape[2] > 1
    window = options.get("sliding_window")
    window = (-1, -1) if window is None else (window - 1, -1 if is_causal else window - 1)
    flash = _flash_finish(query.shape[2], key.shape[2], is_causal, window, float(options.get("softcap") or 0.0), None)
    padding = mask if isinstance(mask, torch.Tensor) and mask.dim() == 2 else None
    square = mask if isinstance(mask, torch.Tensor) and mask.dim() == 4 else None

    def finish(raw, sequences, positions):
        scores = flash(raw, sequences, positions)
        if padding is not None:
            scores = scores.masked_fill(padding[sequences][:, None, None, -raw.shape[-1]:] == 0, -math.inf)
        if square is not None:
            seen = square.expand(query.shape[0], -1, -1, -1)[sequences]
            seen = seen.gather(2, positions[:, None, :, None].expand(-1, seen.shape[1], -1, seen.shape[3]))
            scores = scores.masked_fill(~seen, -math.inf) if seen.dtype == torch.bool else scores + seen.float()
        return scores

    q_scale, k_scale = scale_of(query), scale_of(key)
    attention = Attention(path, query.detach(), key.detach(), scale * q_scale * k_scale, finish, q_scale, k_scale)
    attention.is_biased = square is not None and square.dtype != torch.bool
    return attention

"""Scaled dot-product attention over [batch, tokens, heads, dim].

``attention(q, k, v, mask, scale, causal)`` returns [batch, tokens, heads, dim].
``attention_with_lse(q, k, v, scale)`` returns the same output and the natural logarithm of the softmax's
denominator, float32 [batch, tokens, heads], by which parts of a sequence are combined.

``scale`` None means 1 / sqrt(dim). Keys may have fewer heads than queries: then a key's head serves a group.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lightx2v_fl.operators.implementations import declare, decline, flaggems_function, native_type

_FLAGGEMS_DTYPES = (torch.float16, torch.bfloat16)


def _native(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> Tensor:
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    output = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        is_causal=causal,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return output.transpose(1, 2)


def _scores(q: Tensor, k: Tensor, scale: float | None) -> Tensor:
    """Float32 [batch, heads, queries, keys]."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    queries, keys = q.transpose(1, 2).float(), _spread(k, q).transpose(1, 2).float()
    return (queries @ keys.transpose(-1, -2)) * scale


def _spread(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values with as many heads as the queries."""
    return x.repeat_interleave(q.shape[2] // x.shape[2], dim=2)


def _reference(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> Tensor:
    scores = _scores(q, k, scale)
    if causal:
        below = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~below, float("-inf"))
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        else:
            scores = scores + mask.float()
    weights = torch.softmax(scores, dim=-1)
    values = _spread(v, q).transpose(1, 2).float()
    return (weights @ values).transpose(1, 2).to(q.dtype)


def _flaggems(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> Tensor:
    if mask is not None:
        raise decline("FlagGems' flash attention takes no mask")
    return _flaggems_flash(q, k, v, scale, causal)[0]


def _flaggems_flash(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, causal: bool
) -> tuple[Tensor, Tensor]:
    if q.dtype not in _FLAGGEMS_DTYPES:
        raise decline(f"FlagGems' flash attention takes float16 and bfloat16, not {q.dtype}")
    kernel = flaggems_function("ops.attention", "flash_attention_forward")
    queries, keys, values = q.contiguous(), k.contiguous(), v.contiguous()
    output, lse, *_ = kernel(
        queries, keys, values, None, None, q.shape[1], k.shape[1], 0.0, causal, False, scale=scale
    )
    return output, lse.transpose(1, 2)


attention = declare("attention", native=_native, reference=_reference, flaggems=_flaggems)


def _native_with_lse(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    queries, keys, values = (x.transpose(1, 2) for x in (q, _spread(k, q), _spread(v, q)))
    if native_type(q) == "cpu":
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            queries, keys, values, 0.0, False, scale=scale
        )
    else:
        if not _has_flash(native_type(q)):
            raise decline(f"torch's flash attention has no kernel for {native_type(q)}")
        if q.dtype not in _FLAGGEMS_DTYPES:
            raise decline(f"flash attention takes float16 and bfloat16, not {q.dtype}")
        output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            queries, keys, values, 0.0, False, False, scale=scale
        )
    return output.transpose(1, 2), lse.transpose(1, 2)[:, : q.shape[1]]


@cache
def _has_flash(device_type: str) -> bool:
    """Whether torch has flash attention for that device type."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        "aten::_scaled_dot_product_flash_attention", device_type.upper()
    )


def _reference_with_lse(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None
) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, scale)
    lse = torch.logsumexp(scores, dim=-1)
    values = _spread(v, q).transpose(1, 2).float()
    output = torch.exp(scores - lse.unsqueeze(-1)) @ values
    return output.transpose(1, 2).to(q.dtype), lse.transpose(1, 2)


def _flaggems_with_lse(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None
) -> tuple[Tensor, Tensor]:
    return _flaggems_flash(q, k, v, scale, causal=False)


attention_with_lse = declare(
    "attention_with_lse",
    native=_native_with_lse,
    reference=_reference_with_lse,
    flaggems=_flaggems_with_lse,
)

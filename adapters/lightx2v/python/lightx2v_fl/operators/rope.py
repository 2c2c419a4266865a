"""Rotary position embedding.

``rope(tensors, freqs, interleaved, compute_dtype)`` rotates each of ``tensors``, [..., tokens, heads,
dim], by ``freqs``, complex [tokens, 1, dim / 2] or any shape that broadcasts against the pairs of a
tensor. Element 2i and 2i+1 are a pair when ``interleaved``, element i and i + dim/2 otherwise. The
results have the tensors' dtype; the rotation is computed in ``compute_dtype``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightx2v_fl.operators.implementations import declare, decline, flaggems_function

Rotated = tuple[Tensor, ...]


def _native(
    tensors: Rotated, freqs: Tensor, interleaved: bool, compute_dtype: torch.dtype
) -> Rotated:
    return tuple(_rotate(x, freqs, interleaved, compute_dtype) for x in tensors)


def _rotate(x: Tensor, freqs: Tensor, interleaved: bool, compute_dtype: torch.dtype) -> Tensor:
    wide = x.to(compute_dtype)
    if interleaved:
        pairs = wide.reshape(*x.shape[:-1], -1, 2)
    else:
        pairs = torch.stack(wide.chunk(2, dim=-1), dim=-1)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * freqs)
    if interleaved:
        return turned.flatten(-2).to(x.dtype)
    return torch.cat((turned[..., 0], turned[..., 1]), dim=-1).to(x.dtype)


def _reference(
    tensors: Rotated, freqs: Tensor, interleaved: bool, compute_dtype: torch.dtype
) -> Rotated:
    cos, sin = freqs.real.to(compute_dtype), freqs.imag.to(compute_dtype)
    results = []
    for x in tensors:
        wide = x.to(compute_dtype)
        first, second = (wide[..., 0::2], wide[..., 1::2]) if interleaved else wide.chunk(2, dim=-1)
        turned = (first * cos - second * sin, first * sin + second * cos)
        joined = torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, -1)
        results.append(joined.to(x.dtype))
    return tuple(results)


def _flaggems(
    tensors: Rotated, freqs: Tensor, interleaved: bool, compute_dtype: torch.dtype
) -> Rotated:
    if compute_dtype != torch.float32:
        raise decline(f"FlagGems rotates in float32, not in {compute_dtype}")
    shape = tensors[0].shape
    if len(shape) != 3 or any(x.shape[::2] != shape[::2] for x in tensors):
        raise decline("FlagGems rotates tensors [tokens, heads, dim] of one length")
    tokens = shape[0]
    if freqs.shape not in ((tokens, 1, shape[2] // 2), (tokens, shape[2] // 2)):
        raise decline(f"FlagGems takes one angle per token, not freqs of {tuple(freqs.shape)}")
    angles = freqs.reshape(tokens, -1)
    cos, sin = angles.real.contiguous(), angles.imag.contiguous()
    kernel = flaggems_function("fused.rotary_embedding", "apply_rotary_pos_emb")
    # FlagGems rotates queries and keys together, [batch, tokens, heads, dim], by one angle per position.
    first, last = (x.contiguous().unsqueeze(0) for x in (tensors[0], tensors[-1]))
    rotated = kernel(first, last, cos, sin, rotary_interleaved=interleaved)
    return tuple(x.squeeze(0) for x in rotated[: len(tensors)])


rope = declare("rope", native=_native, reference=_reference, flaggems=_flaggems)

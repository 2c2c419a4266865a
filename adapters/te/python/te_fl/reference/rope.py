"""Rotary position embeddings: each pair of elements is rotated by an angle that grows with its token's position.

``freqs`` is (positions, 1, 1, d2), angles in radians, float32; the first d2 of the last dimension of x are rotated,
the rest is copied. The pairs are (i, i + d2/2), or (2i, 2i + 1) with ``interleaved``. x is (s, b, h, d), (b, s, h, d),
or (tokens, h, d) with ``cu_seqlens``, the cumulative lengths of the sequences. With context parallelism each
sequence is cut into 2·``cp_size`` chunks, and a rank has chunks ``cp_rank`` and 2·``cp_size`` − ``cp_rank`` − 1.
Gradients are those of autograd.
"""

from __future__ import annotations

from typing import Any

import torch

from te_fl.operators.arguments import enumerator
from te_fl.reference.precision import gradients, wide

_FORMATS = {0: "SBHD", 1: "BSHD", 2: "THD"}


def _rotated(x: torch.Tensor, angles: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """(x₁·cos − x₂·sin, x₂·cos + x₁·sin) of each pair (x₁, x₂). ``angles`` (..., d2) broadcast to x (..., d)."""
    d2 = angles.shape[-1]
    part, rest = x[..., :d2], x[..., d2:]
    if interleaved:
        turned = torch.stack((-part[..., 1::2], part[..., ::2]), -1).flatten(-2)
    else:
        turned = torch.cat((-part[..., d2 // 2 :], part[..., : d2 // 2]), -1)
    return torch.cat((part * angles.cos() + turned * angles.sin(), rest), -1)


def _positions(length: int, cp_size: int, cp_rank: int) -> torch.Tensor:
    """The positions (int64) in its sequence of the ``length`` tokens that a rank has of it."""
    if cp_size == 1:
        return torch.arange(length)
    if length % 2:
        raise ValueError(f"a rank of several holds two chunks of one length, not {length} tokens")
    chunk = torch.arange(length // 2)
    first, second = cp_rank, 2 * cp_size - cp_rank - 1
    return torch.cat((chunk + first * len(chunk), chunk + second * len(chunk)))


def _angles(
    x: torch.Tensor,
    freqs: torch.Tensor,
    start: torch.Tensor | None,
    layout: str,
    cu_seqlens: torch.Tensor | None,
    cp_size: int,
    cp_rank: int,
) -> torch.Tensor:
    """The angles of every token, broadcastable to ``x``."""
    dims = 3 if layout == "THD" else 4
    if x.dim() != dims:
        raise ValueError(f"the format {layout.lower()} has {dims} dimensions, got {tuple(x.shape)}")
    if freqs.dim() != 4 or freqs.shape[1:3] != (1, 1) or freqs.shape[3] > x.shape[-1]:
        raise ValueError(
            f"freqs must be (positions, 1, 1, at most {x.shape[-1]}), got {tuple(freqs.shape)}"
        )
    if freqs.shape[3] % 2:
        raise ValueError(f"pairs are turned: the last dimension of freqs is odd, {freqs.shape[3]}")
    if layout == "THD":
        if cu_seqlens is None:
            raise ValueError("the format thd needs cu_seqlens")
        lengths = (cu_seqlens.cpu().long() // cp_size).diff().tolist()
        starts = [0] * len(lengths) if start is None else start.tolist()
        at = torch.cat(
            [
                _positions(length, cp_size, cp_rank) + begin
                for length, begin in zip(lengths, starts, strict=True)
            ]
        )
        # Tokens behind the last sequence are padding.
        at = torch.cat((at, at.new_zeros(x.shape[0] - len(at))))
    else:
        length = x.shape[0 if layout == "SBHD" else 1]
        at = _positions(length, cp_size, cp_rank)[:, None]
        at = at if start is None else at + start.cpu().long()
        at = at if layout == "SBHD" else at.mT
    if at.numel() and int(at.max()) >= freqs.shape[0]:
        raise ValueError(f"freqs has {freqs.shape[0]} positions for {int(at.max()) + 1} tokens")
    return wide(freqs)[:, 0, 0][at.to(freqs.device)].unsqueeze(-2)


def fused_rope_forward(
    input: torch.Tensor,
    freqs: torch.Tensor,
    start_positions: torch.Tensor | None = None,
    qkv_format: Any = 0,
    interleaved: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cp_size: int = 1,
    cp_rank: int = 0,
) -> torch.Tensor:
    """``input`` rotated. ``start_positions`` (b) has the first position of each sequence."""
    layout = enumerator(qkv_format, _FORMATS)
    angles = _angles(input, freqs, start_positions, layout, cu_seqlens, cp_size, cp_rank)
    return _rotated(wide(input), angles, interleaved).to(input.dtype)


def fused_rope_backward(
    output_grads: torch.Tensor, freqs: torch.Tensor, *rest: Any, **named: Any
) -> torch.Tensor:
    """The gradient of :func:`fused_rope_forward`, with the same arguments.

    TransformerEngine 2.9 passes no ``start_positions``: its third argument is the format.
    """
    if rest and rest[0] is not None and not isinstance(rest[0], torch.Tensor):
        rest = (None, *rest)
    # The rotation is linear: its gradient is the same at every input.
    at = torch.zeros_like(output_grads)
    (dx,) = gradients(lambda x: fused_rope_forward(x, freqs, *rest, **named), [at], output_grads)
    return dx.to(output_grads.dtype)


def fused_qkv_rope_forward(
    qkv_input: torch.Tensor,
    q_freqs: torch.Tensor,
    k_freqs: torch.Tensor,
    start_positions: torch.Tensor | None,
    qkv_split_arg_list: list[int],
    qkv_format: Any = 0,
    interleaved: bool = False,
    cp_size: int = 1,
    cp_rank: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(q, k, v) of ``qkv_input`` (., ., groups, q + k + v), with q and k rotated.

    ``qkv_split_arg_list`` has the lengths of q (several heads), k and v. q is returned with the head size of k.
    """
    q, k, v = qkv_input.split(qkv_split_arg_list, -1)
    q = q.reshape(*q.shape[:2], -1, k.shape[-1])
    # As in TransformerEngine, context parallelism ignores starting positions.
    start = start_positions if cp_size == 1 else None
    rest = (start, qkv_format, interleaved, None, cp_size, cp_rank)
    return (
        fused_rope_forward(q, q_freqs, *rest),
        fused_rope_forward(k, k_freqs, *rest),
        v.contiguous(),
    )


def fused_qkv_rope_backward(
    q_grad_out: torch.Tensor,
    k_grad_out: torch.Tensor,
    v_grad_out: torch.Tensor,
    q_freqs: torch.Tensor,
    k_freqs: torch.Tensor,
    qkv_split_arg_list: list[int],
    qkv_format: Any = 0,
    interleaved: bool = False,
    cp_size: int = 1,
    cp_rank: int = 0,
) -> torch.Tensor:
    """The gradient of :func:`fused_qkv_rope_forward`, without starting positions."""
    rest = (None, qkv_format, interleaved, None, cp_size, cp_rank)
    dq = fused_rope_backward(q_grad_out, q_freqs, *rest)
    dk = fused_rope_backward(k_grad_out, k_freqs, *rest)
    return torch.cat((dq.reshape(*dk.shape[:3], qkv_split_arg_list[0]), dk, v_grad_out), -1)

"""Rotary position embeddings.

``freqs`` is (positions, 1, 1, d2) in float32, angles in radians; the first d2 of the last dimension are
rotated, the rest is copied. The pairs are (i, i + d2/2), or neighbours with ``interleaved``.
Formats: sbhd, bshd, and thd with the cumulative lengths of its sequences. With context parallelism the
rank holds chunks ``cp_rank`` and 2·``cp_size`` − ``cp_rank`` − 1 of each sequence.
"""

from __future__ import annotations

from typing import Any

import torch

from te_fl.operators.arguments import enumerator

_FORMATS = {0: "SBHD", 1: "BSHD", 2: "THD"}


def _partners(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """``x`` with the two elements of each rotated pair exchanged."""
    if interleaved:
        swapped: torch.Tensor = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return swapped
    return x.roll(x.shape[-1] // 2, -1)


def _turn(x: torch.Tensor, angles: torch.Tensor, interleaved: bool, backward: bool) -> torch.Tensor:
    d2 = angles.shape[-1]
    # With float32 angles torch computes in float32, also for x of 16 bits.
    angles = angles.to(torch.promote_types(x.dtype, torch.float32))
    cos, sin = torch.cos(angles), torch.sin(angles)
    if backward:
        # The transposed rotation uses the partner's sine with the opposite sign.
        sin = _partners(sin, interleaved)
    negative = sin[..., int(backward) :: 2] if interleaved else sin.chunk(2, -1)[int(backward)]
    negative.neg_()
    part = x if d2 == x.shape[-1] else x[..., :d2]
    turned = (part * cos).addcmul_(_partners(part, interleaved), sin).to(x.dtype)
    return turned if part is x else torch.cat((turned, x[..., d2:]), -1)


def _chunked(position: torch.Tensor, length: Any, cp_size: int, cp_rank: int) -> torch.Tensor:
    """Global positions of a rank's local ``position``. ``length`` is the local length, or one per token."""
    half = length // 2
    first = position + cp_rank * half
    second = position + length * cp_size - (cp_rank + 1) * half - half
    return torch.where(position < half, first, second)


def _positions(
    x: torch.Tensor,
    layout: str,
    start: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    cp_size: int,
    cp_rank: int,
) -> torch.Tensor:
    """The row of ``freqs`` for each token, broadcastable to the leading dimensions of ``x``."""
    if layout == "THD":
        if cu_seqlens is None:
            raise ValueError("the format thd needs cu_seqlens")
        ends = cu_seqlens.to(device=x.device, dtype=torch.long) // cp_size
        token = torch.arange(x.shape[0], device=x.device)
        sequence = torch.searchsorted(ends, token, right=True).clamp(1, ends.numel() - 1) - 1
        position = token - ends[sequence]
        length: Any = ends[sequence + 1] - ends[sequence]
        offset = start.to(torch.long)[sequence] if start is not None else 0
    else:
        length = x.shape[0] if layout == "SBHD" else x.shape[1]
        position = torch.arange(length, device=x.device)
        position = position[:, None] if layout == "SBHD" else position[None, :]
        offset = 0
        if start is not None:
            offset = (
                start.to(torch.long)[None, :] if layout == "SBHD" else start.to(torch.long)[:, None]
            )
    if cp_size > 1:
        position = _chunked(position, length, cp_size, cp_rank)
    return position + offset


def _rope(
    x: torch.Tensor,
    freqs: torch.Tensor,
    start: torch.Tensor | None,
    layout: str,
    interleaved: bool,
    cu_seqlens: torch.Tensor | None,
    cp_size: int,
    cp_rank: int,
    backward: bool,
) -> torch.Tensor:
    dims = 3 if layout == "THD" else 4
    if x.dim() != dims:
        raise ValueError(f"the format {layout.lower()} has {dims} dimensions, got {tuple(x.shape)}")
    if freqs.dim() != 4 or freqs.shape[1:3] != (1, 1) or freqs.shape[3] > x.shape[-1]:
        raise ValueError(
            f"freqs must be (positions, 1, 1, at most {x.shape[-1]}), got {tuple(freqs.shape)}"
        )
    if freqs.shape[3] % 2:
        raise ValueError(f"pairs are turned: the last dimension of freqs is odd, {freqs.shape[3]}")
    if layout != "THD":
        length = x.shape[0 if layout == "SBHD" else 1]
        if length * cp_size > freqs.shape[0]:
            raise ValueError(f"freqs has {freqs.shape[0]} positions for {length * cp_size} tokens")
        if cp_size > 1 and length % 2:
            raise ValueError(
                f"a rank of several holds two chunks of one length, not {length} tokens"
            )
        if cp_size == 1 and start is None:
            # These shapes broadcast: (s, 1, 1, d2) to sbhd, (s, 1, d2) to bshd.
            angles = freqs[:length] if layout == "SBHD" else freqs[:length, 0]
            return _turn(x, angles, interleaved, backward)
    position = _positions(x, layout, start, cu_seqlens, cp_size, cp_rank)
    angles = freqs[:, 0, 0]
    # Tokens past the last sequence of thd are padding: their results are not used.
    angles = angles[position.clamp(0, freqs.shape[0] - 1)]
    return _turn(x, angles.unsqueeze(-2), interleaved, backward)


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
    """``input`` rotated. ``start_positions`` has the first position of each sequence."""
    layout = enumerator(qkv_format, _FORMATS)
    return _rope(
        input, freqs, start_positions, layout, interleaved, cu_seqlens, cp_size, cp_rank, False
    )


def fused_rope_backward(
    output_grads: torch.Tensor, freqs: torch.Tensor, *rest: Any, **named: Any
) -> torch.Tensor:
    """The gradient of :func:`fused_rope_forward`, with the same arguments.

    TransformerEngine 2.9 passes no ``start_positions``: its third argument is the format.
    """
    if rest and rest[0] is not None and not isinstance(rest[0], torch.Tensor):
        rest = (None, *rest)
    return _fused_rope_backward(output_grads, freqs, *rest, **named)


def _fused_rope_backward(
    output_grads: torch.Tensor,
    freqs: torch.Tensor,
    start_positions: torch.Tensor | None = None,
    qkv_format: Any = 0,
    interleaved: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cp_size: int = 1,
    cp_rank: int = 0,
) -> torch.Tensor:
    layout = enumerator(qkv_format, _FORMATS)
    return _rope(
        output_grads,
        freqs,
        start_positions,
        layout,
        interleaved,
        cu_seqlens,
        cp_size,
        cp_rank,
        True,
    )


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
    """(q, k, v) split from the last dimension of ``qkv_input``, with q and k rotated.

    ``qkv_split_arg_list`` has the lengths of q (several heads), k and v. q is returned with the head size of k.
    """
    layout = enumerator(qkv_format, _FORMATS)
    length_q, length_k, length_v = qkv_split_arg_list
    q, k, v = qkv_input.split([length_q, length_k, length_v], -1)
    q = q.reshape(*q.shape[:2], q.shape[2] * length_q // length_k, length_k)
    # As in TransformerEngine, context parallelism ignores starting positions.
    start = start_positions if cp_size == 1 else None
    q = _rope(q, q_freqs, start, layout, interleaved, None, cp_size, cp_rank, False)
    k = _rope(k, k_freqs, start, layout, interleaved, None, cp_size, cp_rank, False)
    return q, k.contiguous(), v.contiguous()


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
    layout = enumerator(qkv_format, _FORMATS)
    dq = _rope(q_grad_out, q_freqs, None, layout, interleaved, None, cp_size, cp_rank, True)
    dk = _rope(k_grad_out, k_freqs, None, layout, interleaved, None, cp_size, cp_rank, True)
    dq = dq.reshape(*k_grad_out.shape[:3], qkv_split_arg_list[0])
    return torch.cat((dq, dk, v_grad_out), -1)

"""Products with weights of 4 and 8 bits of integers.

A weight of ``bits`` bits is ``(number - zero) · scale``. Numbers lie in int32 [in, out / (32 / bits)], the first of
them in the lowest bits; scales [groups, out] and zeros (packed like a row of numbers, or one for all) are those of
equal groups of rows, or of the group that ``groups`` int32 [in] has for each row.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LARGEST = 127  # of the symmetric numbers in 8 bits
_LOWEST, _STEPS = -128, 255


def unpacked(packed: Tensor, bits: int) -> Tensor:
    """The numbers in the last dimension of integers, the lowest bits first."""
    width = 8 * packed.element_size()
    shifts = torch.arange(0, width, bits, dtype=torch.int32, device=packed.device)
    numbers = (packed.to(torch.int32).unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    found: Tensor = numbers.flatten(-2)
    return found


def packed(numbers: Tensor, bits: int) -> Tensor:
    """Numbers int32 [..., n] as int32 [..., n / (32 / bits)]."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=numbers.device)
    parts: Tensor = numbers.unflatten(-1, (-1, 32 // bits)) << shifts
    return parts.sum(-1, dtype=torch.int32)


def group_quantized_mm(
    x: Tensor,
    numbers: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    groups: Tensor | None,
    bits: int,
    zero: int,
) -> Tensor:
    """X [tokens, in] · the weight [in, out], in x's dtype; the weight is rounded to it first."""
    weight = unpacked(numbers, bits)
    lowest = torch.full_like(scales, zero) if zeros is None else unpacked(zeros, bits)
    if groups is None:
        blocks = weight.unflatten(0, (scales.shape[0], -1))
        meant = ((blocks - lowest[:, None]) * scales[:, None].float()).flatten(0, 1)
    else:
        rows = groups.long()
        meant = (weight - lowest[rows]) * scales[rows].float()
    made: Tensor = x @ meant.to(x.dtype)
    return made


def static_scaled_int8_quant(result: Tensor, x: Tensor, scale: Tensor, zero: Tensor | None) -> None:
    """X in int8, with one scale and zero for all."""
    if zero is None:
        _store(result, torch.round(x.float() / scale))
    else:
        _store(result, torch.round(x.float() * (1 / scale)) + zero)


def dynamic_scaled_int8_quant(
    result: Tensor, x: Tensor, scale: Tensor, zero: Tensor | None
) -> None:
    """X in int8, with a scale (and a zero) for each row, which it writes."""
    rows = x.reshape(-1, x.shape[-1]).float()
    if zero is None:
        largest = rows.abs().amax(-1, keepdim=True)
        scale.copy_((largest / LARGEST).view_as(scale))
        factor = torch.where(largest == 0, 0.0, LARGEST / largest)
        _store(result, torch.round(rows * factor).view(x.shape))
        return
    least, most = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    steps = (most - least) / _STEPS
    steps = torch.where(steps == 0, 1.0, steps)
    zeros = torch.round(_LOWEST - least / steps)
    scale.copy_(steps.view_as(scale))
    zero.copy_(zeros.view_as(zero))
    _store(result, (torch.round(rows * (1 / steps)) + zeros).view(x.shape))


def _store(result: Tensor, numbers: Tensor) -> None:
    result.copy_(numbers.clamp(_LOWEST, LARGEST).to(torch.int8))


def cutlass_scaled_mm(
    result: Tensor, a: Tensor, b: Tensor, a_scales: Tensor, b_scales: Tensor, bias: Tensor | None
) -> None:
    """A [rows, in] · b [in, out] · the scales of rows and of columns + bias."""
    _scaled(result, _product(a, b), a_scales, b_scales, bias)


def cutlass_scaled_mm_azp(
    result: Tensor,
    a: Tensor,
    b: Tensor,
    a_scales: Tensor,
    b_scales: Tensor,
    sums: Tensor,
    zeros: Tensor | None,
    bias: Tensor | None,
) -> None:
    """The same for an a with zeros: ``sums`` of b's columns, times the zero where it is one for all."""
    less = sums.reshape(1, -1).double()
    if zeros is not None:
        less = zeros.reshape(-1, 1).double() * less
    _scaled(result, _product(a, b) - less, a_scales, b_scales, bias)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return a.double() @ b.double()  # exact for numbers of 8 bits, and on every device


def _scaled(
    result: Tensor, product: Tensor, a_scales: Tensor, b_scales: Tensor, bias: Tensor | None
) -> None:
    made = product.float() * a_scales.reshape(-1, 1) * b_scales.reshape(1, -1)
    result.copy_(made if bias is None else made + bias)


def rounded_linear(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """X · weightᵀ [out, in] of int8 with a scale for each row of it; x is rounded to int8 token by token."""
    numbers, steps = torch.empty_like(x, dtype=torch.int8), x.new_empty(x.shape[0], 1).float()
    dynamic_scaled_int8_quant(numbers, x, steps, None)
    result = x.new_empty(x.shape[0], weight.shape[0])
    cutlass_scaled_mm(result, numbers, weight.t(), steps, scales, None)
    return result


def grouped_linear(
    x: Tensor, numbers: Tensor, scales: Tensor, zeros: Tensor | None, bits: int
) -> Tensor:
    """X · weightᵀ, whose numbers lie in uint8 [out, in / (8 / bits)], with scales [out, groups].

    Zeros are uint8 [out / (8 / bits), groups], or the middle number.
    """
    weight = unpacked(numbers, bits)
    lowest: Tensor | int = 1 << (bits - 1)
    if zeros is not None:
        lowest = unpacked(zeros.t(), bits).t()[..., None]
    blocks = weight.unflatten(1, (scales.shape[1], -1))
    meant = ((blocks - lowest) * scales[..., None].float()).flatten(1)
    return F.linear(x, meant.to(x.dtype))

"""Linear layers in 8 bits: weights scaled per output channel, activations scaled per token at each call.

``fp8_linear(x, weight, weight_scale, bias)`` and ``int8_linear`` take x [tokens, in], weight [in, out] in
float8_e4m3fn or int8, weight_scale float32 [out, 1] and bias [out] or None, and return [tokens, out] in
x's dtype: (q · scale) @ (weight · weight_scaleᵀ) + bias, where q = round(x / scale) and scale is the
largest magnitude of the token over the largest number of the format.

What one device type of torch has of its own for them is in the module ``eight_bits`` of its room.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flagos import _core
from lightx2v_fl import rooms
from lightx2v_fl.operators.formats import FP8, FP8_MAX, INT8_MAX, SMALLEST_SCALE
from lightx2v_fl.operators.implementations import (
    declare,
    decline,
    flaggems_function,
    native_type,
    of_the_vendor,
)

ROOM = "eight_bits"


def quantize_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, n] as float8_e4m3fn and float32 scales [rows, 1]: x ≈ q · scale."""
    scale = _scale(x, FP8_MAX)
    return (x / scale).clamp_(-FP8_MAX, FP8_MAX).to(FP8), scale


def quantize_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, n] as int8 and float32 scales [rows, 1]: x ≈ q · scale."""
    scale = _scale(x, INT8_MAX)
    return (x / scale).round_().clamp_(-INT8_MAX, INT8_MAX).to(torch.int8), scale


def _scale(x: Tensor, greatest: float) -> Tensor:
    # Only the amax is float32, so the quotient x / scale is the only float32 tensor of x's size.
    # CUDA divides by a number as a product with its inverse. The same product here gives equal scales
    # on every device.
    largest = x.abs().amax(dim=-1, keepdim=True).float()
    return (largest * (1 / greatest)).clamp_min_(SMALLEST_SCALE)


def scaled(product: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    """(product · scale) · weight_scaleᵀ + bias in float32: product [rows, out]."""
    product = (product * scale).mul_(weight_scale.float().reshape(1, -1))
    return product if bias is None else product.add_(bias)


def _room_for(x: Tensor, what: str) -> Any:
    """The room of the device that computes on `x`. Raises UnsupportedError where it has none."""
    kind = native_type(x)
    found = rooms.find(kind, ROOM)
    if found is None:
        raise decline(f"{what} for {', '.join(rooms.names(ROOM))}, not {kind}")
    return found


_TRITON, _PER_ROW = "these Triton kernels are", "torch._scaled_mm has a scale per row"


def _fp8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = _room_for(x, _PER_ROW).fp8_native(x, weight, weight_scale, bias)
    return result


def _fp8_triton(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = _room_for(x, _TRITON).fp8_triton(x, weight, weight_scale, bias)
    return result


def _fp8_reference(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    quantized, scale = quantize_fp8(x)
    product = quantized.float() @ weight.float()
    return scaled(product, scale, weight_scale, bias).to(x.dtype)


def _fp8_flaggems(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    return _flaggems(*_quantize(x, FP8), weight, weight_scale, bias, x.dtype)


def _int8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    room = rooms.find(native_type(x), ROOM)
    if room is not None:
        result: Tensor = room.int8_native(x, weight, weight_scale, bias)
        return result
    quantized, scale = quantize_int8(x)
    return scaled(torch._int_mm(quantized, weight), scale, weight_scale, bias).to(x.dtype)


def _int8_triton(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = _room_for(x, _TRITON).int8_triton(x, weight, weight_scale, bias)
    return result


def _int8_reference(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    quantized, scale = quantize_int8(x)
    product = (quantized.double() @ weight.double()).float()  # exact up to the rounding
    return scaled(product, scale, weight_scale, bias).to(x.dtype)


def _int8_flaggems(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    return _flaggems(*_quantize(x, torch.int8), weight, weight_scale, bias, x.dtype)


def _flaggems(
    quantized: Tensor,
    scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    kernel = flaggems_function("ops.scaled_mm", "scaled_mm")
    by_channel = weight_scale.float().reshape(1, -1)
    result: Tensor = kernel(quantized, weight, scale, by_channel, bias, None, dtype)
    return result


def _quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quantizes x by the Triton kernel if it takes x, else by the formula."""
    try:
        quantized, scale = _room_for(x, _TRITON).quantize(x, dtype)
    except _core.UnsupportedError:
        return quantize_fp8(x) if dtype == FP8 else quantize_int8(x)
    return quantized, scale


fp8_linear = declare(
    "fp8_linear",
    native=_fp8_native,
    reference=_fp8_reference,
    flaggems=_fp8_flaggems,
    triton=_fp8_triton,
    triton_room=ROOM,
    native_unavailable=(
        None
        if rooms.has(of_the_vendor(), ROOM)
        else f"torch has no 8-bit float product with a scale per row for vendor {_core.vendor()}"
    ),
)
int8_linear = declare(
    "int8_linear",
    native=_int8_native,
    reference=_int8_reference,
    flaggems=_int8_flaggems,
    triton=_int8_triton,
    triton_room=ROOM,
)

"""Linear layers in 8 bits: weights scaled per output channel, activations per token as they come.

``fp8_linear(x, weight, weight_scale, bias)`` and ``int8_linear`` take x [tokens, in], weight [in, out] in
float8_e4m3fn or int8, weight_scale float32 [out, 1] and bias [out] or None, and return [tokens, out] in
x's dtype: (q · scale) @ (weight · weight_scaleᵀ) + bias, where q = round(x / scale) and scale is the
largest magnitude of the token over the largest number of the format.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flagos import _core
from lightx2v_fl.operators.implementations import declare, decline, flaggems_function, native_type

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # torch.finfo(FP8).max
INT8_MAX = 127.0
_SMALLEST_SCALE = 1e-12  # a token of zeros


def quantize_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, n] as float8_e4m3fn and float32 scales [rows, 1]: x ≈ q · scale."""
    scale = _scale(x, FP8_MAX)
    return (x / scale).clamp_(-FP8_MAX, FP8_MAX).to(FP8), scale


def quantize_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, n] as int8 and float32 scales [rows, 1]: x ≈ q · scale."""
    scale = _scale(x, INT8_MAX)
    return (x / scale).round_().clamp_(-INT8_MAX, INT8_MAX).to(torch.int8), scale


def _scale(x: Tensor, greatest: float) -> Tensor:
    # In float32, and with it what is divided by it: but for that quotient, nothing of x's size is.
    return (x.abs().amax(dim=-1, keepdim=True).float() / greatest).clamp_min_(_SMALLEST_SCALE)


def _scaled(product: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    product = (product * scale).mul_(weight_scale.float().reshape(1, -1))
    return product if bias is None else product.add_(bias)


def _fp8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    if native_type(x) != "cuda":
        raise decline(f"torch._scaled_mm has no scale per row on {native_type(x)}")
    inner, outer = weight.shape
    if inner % 16 or outer % 16:
        raise decline(f"torch._scaled_mm takes multiples of 16, not a weight of {inner}x{outer}")
    quantized, scale = quantize_fp8(x)
    # Scales per row are only computed into bfloat16, by a weight whose columns are contiguous.
    columns = weight if weight.stride(0) == 1 else weight.t().contiguous().t()
    output = torch._scaled_mm(
        quantized,
        columns,
        scale_a=scale,
        scale_b=weight_scale.float().reshape(1, -1),
        bias=None if bias is None else bias.to(torch.bfloat16),
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
    return output.to(x.dtype)


def _fp8_reference(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    quantized, scale = quantize_fp8(x)
    product = quantized.float() @ weight.float()
    return _scaled(product, scale, weight_scale, bias).to(x.dtype)


def _fp8_flaggems(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    return _flaggems(*quantize_fp8(x), weight, weight_scale, bias, x.dtype)


def _int8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    inner, outer = weight.shape
    on_cuda = native_type(x) == "cuda"
    if on_cuda and (inner % 8 or outer % 8):
        raise decline(f"torch._int_mm takes multiples of 8, not a weight of {inner}x{outer}")
    quantized, scale = quantize_int8(x)
    rows = quantized.shape[0]
    if on_cuda and rows <= 16:  # cuBLASLt's kernel starts at 17 rows
        quantized = torch.nn.functional.pad(quantized, (0, 0, 0, 17 - rows))
    product = torch._int_mm(quantized, weight)[:rows]
    return _scaled(product, scale, weight_scale, bias).to(x.dtype)


def _int8_reference(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    quantized, scale = quantize_int8(x)
    product = (quantized.double() @ weight.double()).float()  # exact up to the rounding
    return _scaled(product, scale, weight_scale, bias).to(x.dtype)


def _int8_flaggems(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    return _flaggems(*quantize_int8(x), weight, weight_scale, bias, x.dtype)


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


fp8_linear = declare(
    "fp8_linear",
    native=_fp8_native,
    reference=_fp8_reference,
    flaggems=_fp8_flaggems,
    native_unavailable=(
        None
        if _core.vendor() == "cuda"
        else f"torch has no 8-bit float product with a scale per row for vendor {_core.vendor()}"
    ),
)
int8_linear = declare(
    "int8_linear", native=_int8_native, reference=_int8_reference, flaggems=_int8_flaggems
)

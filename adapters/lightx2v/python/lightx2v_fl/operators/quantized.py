"""Linear layers in 8 bits: weights scaled per output channel, activations scaled per token at each call.

``fp8_linear(x, weight, weight_scale, bias)`` and ``int8_linear`` take x [tokens, in], weight [in, out] in
float8_e4m3fn or int8, weight_scale float32 [out, 1] and bias [out] or None, and return [tokens, out] in
x's dtype: (q · scale) @ (weight · weight_scaleᵀ) + bias, where q = round(x / scale) and scale is the
largest magnitude of the token over the largest number of the format.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from flagos import _core
from lightx2v_fl.operators.formats import FP8, FP8_MAX, INT8_MAX, SMALLEST_SCALE
from lightx2v_fl.operators.implementations import (
    declare,
    decline,
    flaggems_function,
    native_type,
)


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


def _scaled(product: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    product = (product * scale).mul_(weight_scale.float().reshape(1, -1))
    return product if bias is None else product.add_(bias)


def _fp8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    _check_fp8(x, weight)
    return _fp8_product(*quantize_fp8(x), weight, weight_scale, bias, x.dtype)


def _fp8_triton(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    _check_fp8(x, weight)
    quantized, scale = _kernels_for(x, FP8).quantize(x, FP8)
    return _fp8_product(quantized, scale, weight, weight_scale, bias, x.dtype)


def _check_fp8(x: Tensor, weight: Tensor) -> None:
    if native_type(x) != "cuda":
        raise decline(f"torch._scaled_mm has no scale per row on {native_type(x)}")
    _check_capability(x)
    inner, outer = weight.shape
    if inner % 16 or outer % 16:
        raise decline(f"torch._scaled_mm takes multiples of 16, not a weight of {inner}x{outer}")


def _check_capability(x: Tensor) -> None:
    if _capability(x.device.index) < (8, 9):
        raise decline("there are no 8-bit floats below compute capability 8.9")


# The fewest rows with fast accumulation and a bias. With fewer rows cuBLASLt 13 has only precise kernels for
# some weights (8960x1536 on an H200).
_FAST_WITH_BIAS = 128


def _fp8_product(
    quantized: Tensor,
    scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    # torch._scaled_mm with scales per row has only bfloat16 results.
    try:
        output = torch._scaled_mm(
            quantized,
            _by_columns(weight),
            scale_a=scale,
            scale_b=weight_scale.float().reshape(1, -1),
            bias=None if bias is None else bias.to(torch.bfloat16),
            out_dtype=torch.bfloat16,
            use_fast_accum=bias is None or quantized.shape[0] >= _FAST_WITH_BIAS,
        )
    except RuntimeError as error:
        if "CUBLAS_STATUS_NOT_SUPPORTED" not in str(error):
            raise
        sizes = f"{tuple(quantized.shape)} times {tuple(weight.shape)}"
        raise decline(f"cuBLASLt has no kernel for {sizes} with scales per row") from error
    return output.to(dtype)


def _by_columns(weight: Tensor) -> Tensor:
    """weight [in, out] with contiguous columns, as 8-bit products need it. LightX2V's weights are unchanged."""
    return weight if weight.stride(0) == 1 else weight.t().contiguous().t()


def _fp8_reference(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    quantized, scale = quantize_fp8(x)
    product = quantized.float() @ weight.float()
    return _scaled(product, scale, weight_scale, bias).to(x.dtype)


def _fp8_flaggems(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    return _flaggems(*_quantize(x, FP8), weight, weight_scale, bias, x.dtype)


def _int8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    on_cuda = native_type(x) == "cuda"
    if on_cuda:
        _check_int_mm(weight)
    quantized, scale = quantize_int8(x)
    product = _int_mm(quantized, weight) if on_cuda else torch._int_mm(quantized, weight)
    return _scaled(product, scale, weight_scale, bias).to(x.dtype)


def _int8_triton(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    kernels = _kernels_for(x, torch.int8)
    inner, outer = weight.shape
    if x.shape[1] != inner:
        raise ValueError(
            f"x is {tuple(x.shape)} and weight {inner}x{outer}: expected x [tokens, {inner}]"
        )
    if weight.dtype != torch.int8:
        raise ValueError(f"weight is {weight.dtype}, expected torch.int8")
    if weight_scale.numel() != outer or (bias is not None and bias.numel() != outer):
        raise decline(
            f"these Triton kernels take a scale and a bias for each of the {outer} columns"
        )
    whole = _capability(x.device.index)[0] == 9  # elsewhere the product's tiles may not fit
    if not whole:
        _check_int_mm(weight)
    quantized, scale = kernels.quantize(x, torch.int8)
    result: Tensor
    if whole:
        columns = _by_columns(weight)
        result = kernels.int8_product(quantized, scale, columns, weight_scale, bias, x.dtype)
    else:
        product = _int_mm(quantized, weight)
        result = kernels.scale_product(product, scale, weight_scale, bias, x.dtype)
    return result


def _check_int_mm(weight: Tensor) -> None:
    inner, outer = weight.shape
    if inner % 8 or outer % 8:
        raise decline(f"torch._int_mm takes multiples of 8, not a weight of {inner}x{outer}")


def _int_mm(quantized: Tensor, weight: Tensor) -> Tensor:
    """torch._int_mm on CUDA, with padding to 17 rows, the fewest that cuBLASLt's kernel takes."""
    rows = quantized.shape[0]
    if rows <= 16:
        quantized = torch.nn.functional.pad(quantized, (0, 0, 0, 17 - rows))
    return torch._int_mm(quantized, _by_columns(weight))[:rows]


def _int8_reference(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    quantized, scale = quantize_int8(x)
    product = (quantized.double() @ weight.double()).float()  # exact up to the rounding
    return _scaled(product, scale, weight_scale, bias).to(x.dtype)


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
        kernels = _kernels_for(x, dtype)
    except _core.UnsupportedError:
        return quantize_fp8(x) if dtype == FP8 else quantize_int8(x)
    quantized, scale = kernels.quantize(x, dtype)
    return quantized, scale


def _kernels_for(x: Tensor, dtype: torch.dtype) -> ModuleType:
    """The module `kernels`. Raises UnsupportedError if it does not take x or the device lacks `dtype`."""
    if native_type(x) != "cuda":
        raise decline(f"these Triton kernels are for CUDA, not {native_type(x)}")
    if x.ndim != 2 or not x.shape[1] or x.dtype not in _ACTIVATIONS:
        raise decline(f"these Triton kernels take no {x.dtype} of shape {tuple(x.shape)}")
    if dtype == FP8:
        _check_capability(x)
    kernels, missing = _kernels()
    if kernels is None:
        raise decline(missing)
    return kernels


_ACTIVATIONS = (torch.bfloat16, torch.float16, torch.float32)


@cache
def _kernels() -> tuple[ModuleType | None, str]:
    """(module `kernels`, ""), or (None, the reason why it cannot be used)."""
    try:
        from lightx2v_fl.operators import kernels

        kernels.open_driver()
    except (ImportError, RuntimeError) as error:  # Triton builds its driver with a C compiler
        return None, f"Triton cannot be used: {error}"
    return kernels, ""


@cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


fp8_linear = declare(
    "fp8_linear",
    native=_fp8_native,
    reference=_fp8_reference,
    flaggems=_fp8_flaggems,
    triton=_fp8_triton,
    native_unavailable=(
        None
        if _core.vendor() == "cuda"
        else f"torch has no 8-bit float product with a scale per row for vendor {_core.vendor()}"
    ),
)
int8_linear = declare(
    "int8_linear",
    native=_int8_native,
    reference=_int8_reference,
    flaggems=_int8_flaggems,
    triton=_int8_triton,
)

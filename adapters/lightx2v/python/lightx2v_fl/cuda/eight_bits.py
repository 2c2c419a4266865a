"""8-bit linear layers on cuda: torch's own products (cuBLASLt's), and Triton kernels around them or instead.

Arguments and results are those of the operators in `lightx2v_fl.operators.quantized`. Each function declines a call
that it cannot serve by flagos.UnsupportedError.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from lightx2v_fl.operators.formats import FP8
from lightx2v_fl.operators.implementations import decline
from lightx2v_fl.operators.quantized import quantize_fp8, quantize_int8, scaled


def fp8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    """By torch._scaled_mm, of numbers that torch's operators quantize."""
    _check_fp8(x, weight)
    return _fp8_product(*quantize_fp8(x), weight, weight_scale, bias, x.dtype)


def fp8_triton(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    """By torch._scaled_mm, of numbers that the Triton kernel quantizes."""
    _check_fp8(x, weight)
    quantized, scale = quantize(x, FP8)
    return _fp8_product(quantized, scale, weight, weight_scale, bias, x.dtype)


def _check_fp8(x: Tensor, weight: Tensor) -> None:
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


def int8_native(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    """By torch._int_mm, and torch's operators around it."""
    _check_int_mm(weight)
    quantized, scale = quantize_int8(x)
    return scaled(_int_mm(quantized, weight), scale, weight_scale, bias).to(x.dtype)


def int8_triton(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    """By Triton kernels; where the product's tiles may not fit, around torch._int_mm."""
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
    """torch._int_mm, with padding to 17 rows, the fewest that cuBLASLt's kernel takes."""
    rows = quantized.shape[0]
    if rows <= 16:
        quantized = torch.nn.functional.pad(quantized, (0, 0, 0, 17 - rows))
    return torch._int_mm(quantized, _by_columns(weight))[:rows]


def quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [rows, n] as `dtype` and its scales, by the Triton kernel."""
    quantized, scale = _kernels_for(x, dtype).quantize(x, dtype)
    return quantized, scale


def _kernels_for(x: Tensor, dtype: torch.dtype) -> ModuleType:
    """The module `kernels`. Raises UnsupportedError if it does not take x or the device lacks `dtype`."""
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
        from lightx2v_fl.cuda import kernels

        kernels.open_driver()
    except (ImportError, RuntimeError) as error:  # Triton builds its driver with a C compiler
        return None, f"Triton cannot be used: {error}"
    return kernels, ""


@cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)

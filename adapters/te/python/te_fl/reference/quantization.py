"""FP8 with one scale per tensor: value = byte (as E4M3 or E5M2) / scale.

A quantized tensor has its bytes (uint8) in ``_data`` or, last dimension first, in ``_transpose``, and 1/scale
(float32, one element) in ``_scale_inv``. MXFP8, NVFP4 and blocks of FP8 are declined.
"""

from __future__ import annotations

from typing import Any

import torch

from flagos._core import UnsupportedError
from te_fl.operators.arguments import assign, torch_dtype, unless
from te_fl.operators.quantization import is_quantized
from te_fl.reference.precision import wide


def _is(quantizer: Any, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(quantizer).__mro__)


def check(quantizer: Any) -> None:
    """Raises UnsupportedError for a quantizer of another recipe, before anything is computed."""
    if quantizer is not None and not (
        _is(quantizer, "Float8Quantizer") or _is(quantizer, "Float8CurrentScalingQuantizer")
    ):
        raise UnsupportedError(f"{type(quantizer).__name__} is not supported by reference.torch")


def _fp8_dtype(dtype: Any) -> torch.dtype:
    found = torch_dtype(dtype)
    if found not in (torch.float8_e4m3fn, torch.float8_e5m2):
        raise ValueError(f"an FP8 dtype is needed, got {dtype!r}")
    return found


def scale_from_amax(
    amax: torch.Tensor, largest: float, power_of_2: bool = False, epsilon: float = 0.0
) -> torch.Tensor:
    """``largest``/``amax`` (at least ``epsilon``) per element in float32, at most the largest float32.

    1 where ``amax`` is 0, infinite or not a number. With ``power_of_2``, the power of 2 at or below it.
    """
    amax = amax.float()
    amax = torch.where(amax < epsilon, epsilon, amax)
    scale = (largest / amax).clamp(max=torch.finfo(torch.float32).max)
    if power_of_2:
        # scale = mantissa · 2^exponent, with a mantissa from 0.5 to 1.
        exponent = torch.frexp(scale).exponent
        scale = torch.ldexp(torch.ones_like(scale), exponent - 1)
    return torch.where(torch.isfinite(amax) & (amax != 0), scale, 1.0)


def encode(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x`` · ``scale``, rounded to FP8, as bytes. Numbers beyond the format become its largest."""
    largest = torch.finfo(dtype).max
    return (x.float() * scale).clamp(-largest, largest).to(dtype).view(torch.uint8)


def values(tensor: Any) -> torch.Tensor:
    """The values of a tensor: float32 if it is quantized."""
    if not is_quantized(tensor):
        given: torch.Tensor = tensor
        return given
    data, transpose = getattr(tensor, "_data", None), getattr(tensor, "_transpose", None)
    scale_inv = getattr(tensor, "_scale_inv", None)
    if data is None and transpose is not None:
        data = transpose.movedim(0, -1).contiguous()
    if data is None or scale_inv is None or scale_inv.numel() != 1:
        raise UnsupportedError(f"{type(tensor).__name__} is not supported by reference.torch")
    exact: torch.Tensor = data.view(_fp8_dtype(tensor._fp8_dtype)).float() * scale_inv.float()
    return exact


def quantize(
    tensor: Any, quantizer: Any, output: Any = None, noop: torch.Tensor | None = None
) -> Any:
    """``tensor`` in FP8, in ``output`` if given, which is unchanged if ``noop`` (one element) is not 0.

    Delayed scaling takes the quantizer's scale and raises its amax. Current scaling takes the scale from the
    tensor. Without a quantizer the result is the tensor's values.
    """
    check(quantizer)
    x = values(tensor).detach()
    if quantizer is None:
        if output is None:
            return values(tensor)
        return assign(output, unless(noop, x.to(output.dtype), output.detach()))
    dtype = _fp8_dtype(quantizer.dtype)
    if output is None:
        output = quantizer.make_empty(tuple(x.shape), dtype=x.dtype, device=x.device)
    amax = x.abs().amax().float() if x.numel() else torch.zeros((), device=x.device)
    if _is(quantizer, "Float8CurrentScalingQuantizer"):
        power_of_2 = bool(getattr(quantizer, "force_pow_2_scales", False))
        epsilon = float(getattr(quantizer, "amax_epsilon", 0.0))
        scale = scale_from_amax(amax, torch.finfo(dtype).max, power_of_2, epsilon)
    else:
        scale = quantizer.scale.float().reshape(())
        _write(quantizer.amax, torch.maximum(quantizer.amax.float(), amax), noop)
    data = encode(x, scale, dtype)
    if getattr(output, "_data", None) is not None:
        _write(output._data, data, noop)
    if getattr(output, "_transpose", None) is not None:
        _write(output._transpose, data.movedim(-1, 0), noop)
        output._transpose_invalid = False
    _write(output._scale_inv, 1.0 / scale, noop)
    return output


def _write(target: torch.Tensor, value: torch.Tensor, noop: torch.Tensor | None) -> None:
    assign(target, unless(noop, value.reshape(target.shape).to(target.dtype), target.detach()))


def deliver(y: torch.Tensor, dtype: torch.dtype, out: Any = None, quantizer: Any = None) -> Any:
    """``y``, rounded to ``dtype``: quantized by ``quantizer``, and written into ``out`` if given."""
    y = y.to(dtype)
    if quantizer is not None:
        return quantize(y, quantizer, out)
    return y if out is None else assign(out, y.reshape(out.shape).to(out.dtype))


def dequantize(input: Any, otype: Any) -> torch.Tensor:
    """The values of a quantized tensor as ``otype``."""
    dtype = torch_dtype(otype)
    if dtype is None:
        raise ValueError("dequantize needs the dtype of its result")
    return values(input).to(dtype)


def bgrad_quantize(input: torch.Tensor, quantizer: Any) -> tuple[torch.Tensor, Any]:
    """(the sum of ``input`` (..., n) over all rows: (n), ``input`` quantized)."""
    check(quantizer)
    bias = wide(input).reshape(-1, input.shape[-1]).sum(0).to(input.dtype)
    return bias, quantize(input, quantizer)


def multi_tensor_quantize(tensor_list: list[Any], quantizer_list: list[Any]) -> list[Any]:
    """Each tensor quantized by its quantizer."""
    for quantizer in quantizer_list:
        check(quantizer)
    return [quantize(*pair) for pair in zip(tensor_list, quantizer_list, strict=True)]


def split_quantize(
    tensor: torch.Tensor,
    split_sections: list[int],
    quantizer_list: list[Any],
    disable_bulk_allocation: bool = False,
) -> list[Any]:
    """Sections of the first dimension, of the given lengths, each quantized by its quantizer."""
    return multi_tensor_quantize(list(tensor.split(list(split_sections))), quantizer_list)


def fp8_transpose(input: torch.Tensor, dtype: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    """Bytes (..., n) as (n, ...)."""
    flipped = input.movedim(-1, 0).contiguous()
    return flipped if out is None else assign(out, flipped.reshape(out.shape))


def swap_first_dims(tensor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """(a, b, ...) as (b, a, ...)."""
    swapped = tensor.transpose(0, 1).contiguous()
    return swapped if out is None else assign(out, swapped)


def compute_amax(input: torch.Tensor, amax: torch.Tensor) -> None:
    """Writes max |``input``| into ``amax`` (float32, one element); 0 for an empty tensor."""
    largest = input.detach().abs().amax() if input.numel() else input.new_zeros(())
    assign(amax, largest.float().reshape(amax.shape))


def multi_tensor_compute_scale_and_scale_inv(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: list[list[torch.Tensor]],
    max_fp8: float,
    force_pow_2_scales: bool = False,
    epsilon: float = 0.0,
) -> None:
    """Scales and their inverses from amaxes, in float32; ``tensor_lists`` are amaxes, scales, inverses."""
    for amax, scale, inverse in zip(*tensor_lists, strict=True):
        new = scale_from_amax(amax, max_fp8, bool(force_pow_2_scales), epsilon)
        _write(scale, new, noop_flag)
        _write(inverse, 1.0 / new, noop_flag)

"""FP8 with one scale per tensor: quantize, dequantize, transpose, and computation of scales.

A quantized tensor is TransformerEngine's ``Float8Tensor`` (or its storage): bytes in ``_data``, optionally
``_transpose``, and ``_scale_inv``, with value = byte × scale_inv. Block scaling (MXFP8, NVFP4, blocks of
FP8) is declined, and the plan tries the next implementation.
"""

from __future__ import annotations

from typing import Any

import torch

from flagos._core import UnsupportedError
from te_fl.operators.arguments import assign, torch_dtype, unless

_MAX = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
_FLOAT_MAX = torch.finfo(torch.float32).max


def _is(quantizer: Any, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(quantizer).__mro__)


def check(quantizer: Any) -> None:
    """Raises UnsupportedError for a quantizer other than FP8 with one scale per tensor."""
    if quantizer is None or _is(quantizer, "Float8Quantizer"):
        return
    if not _is(quantizer, "Float8CurrentScalingQuantizer"):
        raise UnsupportedError(f"{type(quantizer).__name__} is not supported by default.flagos_rs")


def scale_from_amax(
    amax: torch.Tensor, largest: float, power_of_2: bool, epsilon: float
) -> torch.Tensor:
    """The scale that maps ``amax`` to ``largest``, per element, in float32.

    1 where amax is 0, infinite or not a number; with ``power_of_2`` the next smaller power of 2.
    """
    amax = amax.float()
    amax = torch.where(amax < epsilon, torch.full_like(amax, epsilon), amax)
    scale = torch.clamp(largest / amax, max=_FLOAT_MAX)
    if power_of_2:
        scale = (scale.view(torch.int32) & 0x7F800000).view(torch.float32)
    usable = torch.isfinite(amax) & (amax != 0)
    return torch.where(usable, scale, torch.ones_like(scale))


def to_fp8(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x`` × ``scale`` in FP8 as bytes, saturating at the largest number."""
    largest = _MAX[dtype]
    return torch.clamp(x.float() * scale, -largest, largest).to(dtype).view(torch.uint8)


def from_fp8(data: torch.Tensor, scale_inv: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes of FP8 × ``scale_inv`` in float32."""
    return data.view(dtype).float() * scale_inv.float()


def is_quantized(tensor: Any) -> bool:
    """Whether ``tensor`` is one of TransformerEngine's quantized ones."""
    # A fast path: torch takes a microsecond to report a missing attribute of a tensor.
    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        return False
    return hasattr(tensor, "_scale_inv") or hasattr(tensor, "_rowwise_data")


def plain(tensor: Any) -> torch.Tensor:
    """The values of a tensor, in float32 when it is quantized."""
    if not is_quantized(tensor):
        given: torch.Tensor = tensor
        return given
    data, scale_inv = getattr(tensor, "_data", None), getattr(tensor, "_scale_inv", None)
    transpose = getattr(tensor, "_transpose", None)
    if scale_inv is None or scale_inv.numel() != 1 or (data is None and transpose is None):
        raise UnsupportedError(f"{type(tensor).__name__} is not supported by default.flagos_rs")
    dtype = torch_dtype(tensor._fp8_dtype)
    assert dtype is not None
    if data is None:
        assert transpose is not None
        # The transpose has the last dimension first.
        data = transpose.movedim(0, -1)
        return from_fp8(data.contiguous(), scale_inv, dtype)
    return from_fp8(data, scale_inv, dtype)


def quantize(
    tensor: Any, quantizer: Any, output: Any = None, noop: torch.Tensor | None = None
) -> Any:
    """``tensor`` quantized by ``quantizer``, in ``output`` if given; ``output`` is unchanged if ``noop`` is set.

    Without a quantizer the result is the tensor's values, copied into ``output`` if given.
    """
    check(quantizer)
    values = plain(tensor)
    if quantizer is None:
        if output is None:
            return values
        return assign(output, unless(noop, values.to(output.dtype), output))
    dtype = torch_dtype(quantizer.dtype)
    assert dtype is not None
    if output is None:
        output = quantizer.make_empty(tuple(values.shape), dtype=values.dtype, device=values.device)
    with torch.no_grad():
        amax = (
            values.detach().abs().amax().float()
            if values.numel()
            else values.new_zeros((), dtype=torch.float32)
        )
        if _is(quantizer, "Float8CurrentScalingQuantizer"):
            epsilon = float(getattr(quantizer, "amax_epsilon", 0.0))
            power_of_2 = bool(getattr(quantizer, "force_pow_2_scales", False))
            scale = scale_from_amax(amax, _MAX[dtype], power_of_2, epsilon)
        else:
            scale = quantizer.scale.float().reshape(())
            old = quantizer.amax
            old.copy_(unless(noop, torch.maximum(old.float(), amax.reshape(old.shape)), old))
        data = to_fp8(values.detach(), scale, dtype)
        if getattr(output, "_data", None) is not None:
            output._data.copy_(unless(noop, data.view(output._data.shape), output._data))
        if getattr(output, "_transpose", None) is not None:
            flipped = data.movedim(-1, 0).contiguous().view(output._transpose.shape)
            output._transpose.copy_(unless(noop, flipped, output._transpose))
            output._transpose_invalid = False
        inverse = (1.0 / scale).reshape(output._scale_inv.shape)
        output._scale_inv.copy_(unless(noop, inverse, output._scale_inv))
    return output


def dequantize(input: Any, otype: Any) -> torch.Tensor:
    """The values of a quantized tensor as ``otype``."""
    dtype = torch_dtype(otype)
    assert dtype is not None
    return plain(input).to(dtype)


def bgrad_quantize(input: torch.Tensor, quantizer: Any) -> tuple[torch.Tensor, Any]:
    """The gradient of a bias (the sum over all rows of ``input``), and ``input`` quantized."""
    check(quantizer)
    bias = input.reshape(-1, input.shape[-1]).sum(0, dtype=torch.float32).to(input.dtype)
    return bias, quantize(input, quantizer)


def multi_tensor_quantize(tensor_list: list[Any], quantizer_list: list[Any]) -> list[Any]:
    """Each tensor quantized by its quantizer."""
    for quantizer in quantizer_list:
        check(quantizer)
    pairs = zip(tensor_list, quantizer_list, strict=True)
    return [quantize(tensor, quantizer) for tensor, quantizer in pairs]


def split_quantize(
    tensor: torch.Tensor,
    split_sections: list[int],
    quantizer_list: list[Any],
    disable_bulk_allocation: bool = False,
) -> list[Any]:
    """Sections of the first dimension, each quantized by its quantizer."""
    return multi_tensor_quantize(list(torch.split(tensor, list(split_sections))), quantizer_list)


def fp8_transpose(input: torch.Tensor, dtype: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    """Bytes of shape (..., n) as (n, ...): the last dimension comes first."""
    flipped = input.movedim(-1, 0)
    if out is None:
        return flipped.contiguous()
    return assign(out, flipped.reshape(out.shape))


def swap_first_dims(tensor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """(a, b, ...) as (b, a, ...)."""
    swapped = tensor.transpose(0, 1)
    return swapped.contiguous() if out is None else assign(out, swapped)


def compute_amax(input: torch.Tensor, amax: torch.Tensor) -> None:
    """Writes the largest absolute value of ``input`` into ``amax``."""
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
    """Scales and their inverses from amaxes; ``tensor_lists`` are amaxes, scales, inverses."""
    for amax, scale, inverse in zip(*tensor_lists, strict=True):
        new = scale_from_amax(amax, max_fp8, bool(force_pow_2_scales), epsilon)
        assign(scale, unless(noop_flag, new, scale))
        assign(inverse, unless(noop_flag, 1.0 / new, inverse))

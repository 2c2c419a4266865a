"""Products with weights of 4 and 8 bits of integers: see `flagos_serving.references.quantized`."""

from __future__ import annotations

from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import quantized as reference
from vllm_flagos.vllm import VLLM

_kernel = VLLM.function(
    "model_executor.kernels.linear.mixed_precision.triton_w4a16", "triton_w4a16_gemm"
)
_GROUPS = (32, 64, 128, 256)


def _triton(
    x: Tensor,
    numbers: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    groups: Tensor | None,
    bits: int,
    zero: int,
) -> Tensor:
    if bits != 4 or groups is not None:
        raise decline("vLLM's kernel is for 4 bits, in groups of rows as they follow each other")
    if x.dtype.itemsize != 2 or scales.dtype != x.dtype:
        raise decline(f"vLLM's kernel is for 16 bits, not for {x.dtype} and {scales.dtype}")
    size = x.shape[1] // scales.shape[0]
    if size not in _GROUPS and scales.shape[0] != 1:
        raise decline(f"vLLM's kernel is for groups of {_GROUPS} rows, not of {size}")
    made: Tensor = _kernel(x.contiguous(), numbers, scales, zeros, size, zero)
    return made


group_quantized_mm = VLLM.declare(
    "group_quantized_mm", reference=reference.group_quantized_mm, triton=_triton
)


def _shape(x: Tensor, numbers: Tensor, scales: Tensor, *more: object) -> Tensor:
    return x.new_empty(x.shape[0], scales.shape[1])


VLLM.declare_to_compilers(
    group_quantized_mm,
    "group_quantized_mm(Tensor x, Tensor numbers, Tensor scales, Tensor? zeros, Tensor? groups, int bits, int zero) "
    "-> Tensor",
    _shape,
)

"""fp8 weights of linear layers: SGLang's functions of Triton, as operators of the plan.

Products of a whole tensor's scale are ``torch._scaled_mm``, which SGLang calls itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sglang_flagos import operators


def group_quant(
    original: Callable[..., tuple[Tensor, Tensor]],
    x: Tensor,
    group_size: int,
    eps: float = 1e-10,
    dtype: torch.dtype = torch.float8_e4m3fn,
    column_major_scales: bool = False,
    scale_tma_aligned: bool = False,
    scale_ue8m0: bool = False,
) -> tuple[Tensor, Tensor]:
    """x in 8 bits, with a scale for each ``group_size`` columns of a row."""
    if dtype != torch.float8_e4m3fn or column_major_scales or scale_tma_aligned or scale_ue8m0:
        return original(
            x, group_size, eps, dtype, column_major_scales, scale_tma_aligned, scale_ue8m0
        )
    limits = torch.finfo(dtype)
    made = torch.empty_like(x, dtype=dtype)
    scales = x.new_empty(*x.shape[:-1], x.shape[-1] // group_size, dtype=torch.float32)
    operators.per_token_group_fp8_quant(
        x, made, scales, group_size, eps, limits.min, limits.max, False
    )
    return made, scales


def static_quant(
    original: Callable[..., tuple[Tensor, Tensor]],
    x: Tensor,
    x_s: Tensor,
    repeat_scale: bool = False,
) -> tuple[Tensor, Tensor]:
    """x / x_s in 8 bits, and the scale, or one for each row."""
    made = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    operators.static_scaled_fp8_quant(made, x, x_s)
    rows = x.numel() // x.shape[-1]
    return made, x_s.float().expand(rows, 1).contiguous() if repeat_scale else x_s


def block_product(
    original: Callable[..., Tensor],
    A: Tensor,
    B: Tensor,
    As: Tensor,
    Bs: Tensor,
    block_size: list[int],
    output_dtype: torch.dtype = torch.float16,
) -> Tensor:
    """A · Bᵀ of weights with a scale for each block."""
    rows = A.reshape(-1, A.shape[-1])
    scales = As.reshape(-1, As.shape[-1])
    made: Tensor = operators.block_scaled_mm(rows, B, scales, Bs, list(block_size), output_dtype)
    return made.view(*A.shape[:-1], B.shape[0])


_KERNELS = "sglang.kernels.ops.quantization.fp8_kernel"
HOOKS: dict[str, Callable[..., Any]] = {
    f"{_KERNELS}.per_token_group_quant_fp8": group_quant,
    f"{_KERNELS}.static_quant_fp8": static_quant,
}

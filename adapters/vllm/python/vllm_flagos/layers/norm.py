"""Norms: vLLM's IR operators over ``_C::rms_norm`` and ``_C::fused_add_rms_norm``."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

PROVIDER = "flagos"
OPERATORS = ("rms_norm", "fused_add_rms_norm")


@cache
def register() -> None:
    """Registers the provider ``flagos`` of vLLM's IR operators, once a process."""
    from vllm import ir

    ir.ops.rms_norm.register_impl(PROVIDER, supports_args=_rms_norm_is_served)(rms_norm)
    ir.ops.fused_add_rms_norm.register_impl(
        PROVIDER, supports_args=_fused_add_rms_norm_is_served, inplace=True
    )(fused_add_rms_norm)


def _rms_norm_is_served(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    return variance_size is None and (weight is None or weight.dtype == x.dtype)


def _fused_add_rms_norm_is_served(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    return _rms_norm_is_served(x, weight, epsilon, variance_size)


def rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    """x / sqrt(mean(x²) + epsilon) · weight over the last dimension."""
    output = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    torch.ops._C.rms_norm(output, x, weight, epsilon)
    return output


def fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The norm of x + x_residual, and that sum; both in place."""
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual

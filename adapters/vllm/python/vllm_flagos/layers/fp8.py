"""fp8 linear layers by ``torch._scaled_mm``. vLLM's table of kernels is empty for a platform that it does not know."""

from __future__ import annotations

from typing import Any

from vllm.model_executor.kernels.linear import register_linear_kernel
from vllm.model_executor.kernels.linear.scaled_mm.pytorch import (
    ChannelWiseTorchFP8ScaledMMLinearKernel,
    PerTensorTorchFP8ScaledMMLinearKernel,
)
from vllm.platforms import PlatformEnum, current_platform


def register() -> None:
    """Registers vLLM's two kernels over ``torch._scaled_mm`` for flagos."""
    for kernel in (PerTensorTorchFP8ScaledMMLinearKernel, ChannelWiseTorchFP8ScaledMMLinearKernel):
        register_linear_kernel(_served(kernel), PlatformEnum.OOT, "fp8")


def _served(kernel: Any) -> Any:
    class Served(kernel):  # type: ignore[misc]
        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
            if current_platform.supports_fp8():
                return True, None
            return False, "this device has no products of 8-bit floating-point numbers"

    Served.__name__ = Served.__qualname__ = f"Flagos{kernel.__name__}"
    return Served

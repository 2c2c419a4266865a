"""fp8 linear layers by ``torch._scaled_mm``, over values that ``_C::*_scaled_fp8_quant`` made.

vLLM's table of kernels is empty for a platform that it does not know.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.kernels.linear import register_linear_kernel
from vllm.model_executor.kernels.linear.scaled_mm.pytorch import (
    ChannelWiseTorchFP8ScaledMMLinearKernel,
    PerTensorTorchFP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.platforms import PlatformEnum, current_platform


def register() -> None:
    """Registers vLLM's two kernels over ``torch._scaled_mm`` for flagos, and the quantization of their inputs."""
    own = QuantFP8.name
    QuantFP8.register_oot(FlagosQuantFP8)
    FlagosQuantFP8.name = own
    for kernel in (PerTensorTorchFP8ScaledMMLinearKernel, ChannelWiseTorchFP8ScaledMMLinearKernel):
        register_linear_kernel(_served(kernel), PlatformEnum.OOT, "fp8")


class FlagosQuantFP8(QuantFP8):
    """Calls ``_C::static_scaled_fp8_quant`` and the two dynamic ones; groups of columns are torch's operators."""

    def forward_oot(self, *args: Any, **kwargs: Any) -> Any:
        """The values in 8 bits, and their scales."""
        if self.is_group_quant:
            return self.forward_native(*args, **kwargs)
        return self.forward_cuda(*args, **kwargs)


def _served(kernel: Any) -> Any:
    class Served(kernel):
        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
            if current_platform.supports_fp8():
                return True, None
            return False, "this device has no products of 8-bit floating-point numbers"

    Served.__name__ = Served.__qualname__ = f"Flagos{kernel.__name__}"
    return Served

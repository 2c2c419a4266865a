"""fp8 linear layers over values that ``_C::*_scaled_fp8_quant`` made.

vLLM's table of kernels is empty for a platform that it does not know. Products are ``_C::cutlass_scaled_mm`` where
vLLM's wheel has it, as on its own platform, else ``torch._scaled_mm``.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.kernels.linear import register_linear_kernel
from vllm.model_executor.kernels.linear.scaled_mm.pytorch import (
    ChannelWiseTorchFP8ScaledMMLinearKernel,
    PerTensorTorchFP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.platforms import PlatformEnum, current_platform

from vllm_flagos.kernels import wheel


def register() -> None:
    """Registers vLLM's kernels for flagos, the preferred first, and the quantization of their inputs."""
    own = QuantFP8.name
    QuantFP8.register_oot(FlagosQuantFP8)
    FlagosQuantFP8.name = own
    kernels: list[Any] = [
        PerTensorTorchFP8ScaledMMLinearKernel,
        ChannelWiseTorchFP8ScaledMMLinearKernel,
    ]
    if wheel.missing("_C") is None:
        from vllm.model_executor.kernels.linear.scaled_mm import cutlass
        from vllm.model_executor.layers.quantization import fp8
        from vllm.model_executor.layers.quantization.online import fp8 as online

        kernels.insert(0, cutlass.CutlassFP8ScaledMMLinearKernel)
        for module in (fp8, online):  # with it vLLM quantizes activations token by token
            vars(module)["cutlass_fp8_supported"] = _has_cutlass
    for kernel in kernels:
        register_linear_kernel(_served(kernel), PlatformEnum.OOT, "fp8")


def _has_cutlass() -> bool:
    """Whether vLLM's wheel has CUTLASS' products for this device. vLLM's own function asks for its CUDA platform."""
    found = current_platform.get_device_capability()
    return found is not None and bool(torch.ops._C.cutlass_scaled_mm_supports_fp8(found.to_int()))


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

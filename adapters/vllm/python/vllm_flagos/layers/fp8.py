"""fp8 linear layers over values that ``_C::*_fp8_quant`` made.

vLLM's tables of kernels are empty for a platform that it does not know. Products are ``_C::cutlass_scaled_mm`` where
vLLM's wheel has it, as on its own platform, else ``torch._scaled_mm``, or ``vllm::block_scaled_mm`` for weights with
a scale for each block.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.kernels import linear
from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import (
    Fp8BlockScaledMMLinearKernel,
)
from vllm.model_executor.kernels.linear.scaled_mm.pytorch import (
    ChannelWiseTorchFP8ScaledMMLinearKernel,
    PerTensorTorchFP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.utils import fp8_utils
from vllm.platforms import PlatformEnum, current_platform

from vllm_flagos import platform_view
from vllm_flagos.kernels import wheel


def register() -> None:
    """Registers vLLM's kernels for flagos, the preferred first, and the quantization of their inputs."""
    own = QuantFP8.name
    QuantFP8.register_oot(FlagosQuantFP8)
    FlagosQuantFP8.name = own
    # Which has a kernel of Triton for platforms that it does not know.
    platform_view.install(fp8_utils)
    kernels: list[Any] = [
        PerTensorTorchFP8ScaledMMLinearKernel,
        ChannelWiseTorchFP8ScaledMMLinearKernel,
    ]
    blocks: list[Any] = [FlagosBlockScaledKernel]
    if wheel.missing("_C") is None:
        from vllm.model_executor.kernels.linear.scaled_mm import cutlass
        from vllm.model_executor.layers.quantization import fp8
        from vllm.model_executor.layers.quantization.online import fp8 as online

        kernels.insert(0, cutlass.CutlassFP8ScaledMMLinearKernel)
        if _has_cutlass("cutlass_scaled_mm_supports_block_fp8"):
            blocks.insert(0, cutlass.CutlassFp8BlockScaledMMKernel)
        for module in (fp8, online):  # with it vLLM quantizes activations token by token
            vars(module)["cutlass_fp8_supported"] = _has_cutlass
    for kernel in kernels:
        linear.register_linear_kernel(_served(kernel), PlatformEnum.OOT, "fp8")
    # vLLM 0.26 has no function for these.
    linear._POSSIBLE_FP8_BLOCK_KERNELS[PlatformEnum.OOT] = [_served(kernel) for kernel in blocks]


def _has_cutlass(supports: str = "cutlass_scaled_mm_supports_fp8") -> bool:
    """Whether vLLM's wheel has CUTLASS' products for this device. vLLM's own function asks for its CUDA platform."""
    found = current_platform.get_device_capability()
    return found is not None and bool(getattr(torch.ops._C, supports)(found.to_int()))


class FlagosQuantFP8(QuantFP8):
    """Calls ``_C::static_scaled_fp8_quant``, the two dynamic ones, and ``_C::per_token_group_fp8_quant``."""

    def forward_oot(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """The values in 8 bits, and their scales."""
        # For these vLLM has torch's operators, and kernels of Triton.
        if self.is_group_quant and (self.static or not x.is_contiguous()):
            return self.forward_native(x, *args, **kwargs)
        return self.forward_cuda(x, *args, **kwargs)


class FlagosBlockScaledKernel(Fp8BlockScaledMMLinearKernel):
    """Weights with a scale for each block, by ``vllm::block_scaled_mm``."""

    def apply_block_scaled_mm(
        self, A: torch.Tensor, B: torch.Tensor, As: torch.Tensor, Bs: torch.Tensor
    ) -> torch.Tensor:
        """A · Bᵀ [tokens, out] of the layer's output type."""
        made: torch.Tensor = torch.ops.vllm_flagos.block_scaled_mm(
            A, B, As, Bs, list(self.weight_group_shape), self.config.out_dtype
        )
        return made


def _served(kernel: Any) -> Any:
    class Served(kernel):
        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
            if current_platform.supports_fp8():
                return True, None
            return False, "this device has no products of 8-bit floating-point numbers"

    Served.__name__ = Served.__qualname__ = f"Flagos{kernel.__name__}"
    return Served

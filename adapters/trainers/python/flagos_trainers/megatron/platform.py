"""Megatron-LM-FL's platform for flagos."""

from __future__ import annotations

from typing import Any

import torch
from megatron.plugin.platform.platform_base import PlatformBase

from flagos_trainers.accelerator import Accelerator


class PlatformFlagos(Accelerator, PlatformBase):
    """What `megatron.plugin.platform.get_platform()` returns under ``FLAGOS_MEGATRON=1``."""

    def device(self, device_index: int | str | torch.device | None = None) -> torch.device:
        """The device of a local rank, where DeepSpeed's method of this name has a context."""
        return torch.device(self.device_name(device_index))

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """The state of a device's generator; the keyword is not DeepSpeed's."""
        return super().get_rng_state(device)

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        """The tensor in pinned memory, which is aligned to pages."""
        return tensor.pin_memory()

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in pinned memory."""
        return tensor.is_pinned()

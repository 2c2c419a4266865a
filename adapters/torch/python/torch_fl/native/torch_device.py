"""Another device type of this torch computes: memory, streams, generators and kernels are torch's own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from torch._C._profiler import ProfilerActivity

from torch_fl.native.base import DeviceProperties, History, Native, Segment
from torch_fl.native.description import Description


class TorchNative(Native):
    """The vendor's devices under torch's own name for them; `module` is torch's module of that name."""

    compiled_by = "native device"
    shared_by = "handle"
    keeps_seeds = True

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self.device_type: str = described["torch_device_type"] or ""
        self.profiler_activity = getattr(ProfilerActivity, self.device_type.upper())

    @classmethod
    def missing(cls, vendor: str) -> str | None:
        """Why torch's device type, if it has it, serves no devices of this vendor; None where it does."""
        return None

    @cached_property
    def module(self) -> Any:
        return torch.get_device_module(self.device_type)

    def initialize(self) -> None:
        """Have torch initialise its own device."""
        self.module.init()

    def is_initialized(self) -> bool:
        """Whether torch has."""
        return bool(self.module.is_initialized())

    def device_count(self) -> int:
        """As torch counts them, without initialising its device."""
        return int(self.module.device_count())

    def properties(self) -> tuple[DeviceProperties, ...]:
        """As torch tells them."""
        return tuple(self._properties(index) for index in range(self.device_count()))

    def _properties(self, index: int) -> DeviceProperties:
        found = self.module.get_device_properties(index)
        return DeviceProperties(
            name=found.name,
            vendor=self.vendor,
            total_memory=found.total_memory,
            multi_processor_count=found.multi_processor_count,
            major=found.major,
            minor=found.minor,
        )

    def arch_list(self) -> list[str]:
        """Those of this build of torch."""
        return list(self.module.get_arch_list())

    def can_access_peer(self, device: int, peer: int) -> bool:
        """As torch finds out."""
        return bool(self.module.can_device_access_peer(device, peer))

    def set_memory_fraction(self, fraction: float, device: int) -> None:
        """Torch's allocator keeps the limit."""
        self.module.set_per_process_memory_fraction(fraction, device)

    def memory_snapshot(self, device: int) -> list[Segment]:
        """Those of torch's allocator."""
        return [part for part in self.module.memory_snapshot() if part["device"] == device]

    def memory_history(self) -> History:
        """As torch's allocator recorded it."""
        recorded: History = self.module.memory._snapshot()
        return recorded

    def record_memory_history(self, enabled: Any, *arguments: Any, **named: Any) -> None:
        """Torch's allocator records it."""
        self.module.memory._record_memory_history(enabled, *arguments, **named)

    def memory_pool(self, *arguments: Any, **named: Any) -> Any:
        """A pool of torch's allocator."""
        return self.module.MemPool(*arguments, **named)

    def use_memory_pool(self, pool: Any, device: int) -> AbstractContextManager[None]:
        """Torch's own context."""
        found: AbstractContextManager[None] = self.module.use_mem_pool(pool, device)
        return found

    def seed(self, seed: int) -> None:
        """Torch keeps the seed until the device is initialised."""
        self.module.manual_seed(seed)

    def seed_all(self, seed: int) -> None:
        """Likewise."""
        self.module.manual_seed_all(seed)

    def exported(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory under torch's own name. The gradient requirement is kept, for torch to refuse it."""
        shared = tensor.detach().to(self.device(tensor.device.index))
        return shared.requires_grad_(tensor.requires_grad)

    def device(self, index: int) -> torch.device:
        """The native device beneath a flagos device."""
        return torch.device(self.device_type, index)

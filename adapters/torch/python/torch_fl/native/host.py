"""The CPU computes on device memory: torch's CPU kernels, over memory that the core owns."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch.utils.dlpack import DLDeviceType

from torch_fl.native.base import Native


class HostNative(Native):
    """The vendor `host`, whose devices are the machine's own memory and processor."""

    completions: Mapping[str, str] = MappingProxyType(
        {"torch.utils.data._utils.pin_memory": "torch_fl.native.pinning"}
    )
    device_type = "cpu"
    host_computes = True
    compiled_by = "host code"
    shared_by = "memory"
    why_no_graphs = (
        "it runs kernels as host functions and records no launches; run the region eagerly or use "
        "torch.compile"
    )

    @property
    def accelerator(self) -> str:
        """None: the CPU is no chip beside it."""
        return ""

    @property
    def dlpack_device_type(self) -> int:
        """An accelerator's, since work on the memory may be queued; torch alone takes it."""
        return DLDeviceType.kDLExtDev

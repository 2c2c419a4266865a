"""The interface of the ways in which torch computes on the device."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, Literal, NoReturn

import torch

from flagos import _core
from torch_fl.native.description import Description

Segment = dict[str, Any]
"""A segment of memory, as torch's memory snapshots describe one."""
History = dict[str, Any]
"""The segments and their past events, as torch's memory snapshots describe them."""


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of one device. Sizes are in bytes."""

    name: str
    vendor: str
    total_memory: int
    multi_processor_count: int
    major: int
    minor: int


class Native:
    """The answers of a vendor whose memory, streams and events the core owns, for the ways of serving to change.

    Indices are of devices. Methods that need an initialised device say so; none initialises one.
    """

    device_type: str | None = None
    """The type of tensors over the same memory that torch's own kernels take, and None where there are none."""

    host_computes: bool = False
    """Whether host code may read and write device memory."""

    compiled_by: Literal["host code", "native device", "nothing"] = "nothing"
    """The target of Inductor's code: the host, the native device, or none."""

    shared_by: Literal["memory", "handle", "copy"] = "copy"
    """How another process gets a storage: it is moved to shared memory, opened by a handle, or copied.

    What would be copied is opened by a key where the core's vendor has one, which is known once it is opened.
    """

    repeats_launches: bool = False
    """Whether the core can record and repeat what Triton's kernels launch."""

    captured_by_core: bool = False
    """Whether the core captures the work of streams, if the vendor can, which is known once it is opened."""

    why_no_graphs: str = ""
    """The reason why there are no `graphs`, with an alternative."""

    profiler_activity: Any = None
    """The `ProfilerActivity` by which torch's own tracer collects the device's work; None without a tracer."""

    completions: Mapping[str, str] = MappingProxyType({})
    """Modules of other packages, each with the module here whose `register()` completes it for the device."""

    def __init__(self, described: Description) -> None:
        self._described = described
        self.vendor = described["name"]
        self.triton_backend = described["triton_backend"]
        self.flaggems_vendor = described["flaggems_vendor"]

    @property
    def backend(self) -> str:
        """The name of the vendor's kernels in the plan: the type of device that they are for."""
        return self.device_type or self.vendor

    @property
    def accelerator(self) -> str:
        """The chip that serves the device; "" for the CPU."""
        return self.vendor

    @property
    def dlpack_device_type(self) -> int:
        """The `DLDeviceType` under which other libraries get the memory."""
        return self._described["dlpack_device_type"]

    @property
    def graphs(self) -> ModuleType | None:
        """The functions of `torch.flagos.graphs` where the native device records a stream's work; None elsewhere."""
        return None

    def install(self) -> None:
        """Complete what torch itself asks of the native device by its name."""

    def initialize(self) -> None:
        """Called when the core has initialised the device."""

    def is_initialized(self) -> bool:
        """Whether this process has opened the native device, even without flagos."""
        return False

    def lost(self, error: BaseException) -> bool:
        """Whether the error means that no later call of this process can use the device."""
        message = str(error)
        return any(word in message for word in self._described["device_lost"])

    # ---- devices

    def device_count(self) -> int:
        """The number of devices; 0 when there is none."""
        return torch._C._accelerator_hooks_device_count()

    def properties(self) -> tuple[DeviceProperties, ...]:
        """The properties of every device."""
        return tuple(
            DeviceProperties(
                name=found["name"],
                vendor=found["vendor"],
                total_memory=found["total_memory"],
                multi_processor_count=found["multi_processor_count"],
                major=found["major"],
                minor=found["minor"],
            )
            for found in _core.devices()
        )

    def product_name(self) -> str:
        """The name of the first device, found without initialising it; "" where that is not known."""
        return _core.product_name(self.vendor)

    def arch_list(self) -> list[str]:
        """The architectures that torch's own device code was compiled for."""
        return []

    def can_access_peer(self, device: int, peer: int) -> bool:
        """Whether one device addresses the memory of another directly. Raises ValueError for a device that is none.

        Devices whose memory is the host's share one address space.
        """
        count = self.device_count()
        for index in (device, peer):
            if not 0 <= index < count:
                raise ValueError(
                    f"no device flagos:{index}; this machine has {count} flagos device(s)"
                )
        return self.host_computes or _core.reaches(device, peer)

    # ---- streams

    def external_stream(self, handle: int, device: int) -> int:
        """The id of the flagos stream over another library's stream. Raises flagos.UnsupportedError."""
        self._unsupported(
            "torch.flagos.ExternalStream takes a stream of torch's own device beneath flagos, and the core makes all "
            f"streams of vendor {self.vendor!r}",
            "make one by torch.flagos.Stream()",
        )

    def stream_handle(self, device: int | None = None) -> int:
        """The handle of this thread's current stream of a device, the current one by default, in its own library.

        Raises flagos.UnsupportedError where streams have none.
        """
        self._unsupported(f"streams of vendor {self.vendor!r} have no handles", "use torch.Stream")

    # ---- memory

    def set_memory_fraction(self, fraction: float, device: int) -> None:
        """Limit the memory that this process takes. Needs an initialised device."""
        torch.ops.flagos.set_memory_fraction(device, fraction)

    def memory_snapshot(self, device: int) -> list[Segment]:
        """The allocator's segments with their blocks. Needs an initialised device."""
        return list(json.loads(torch.ops.flagos.memory_snapshot(device)))

    def memory_history(self) -> History | None:
        """The segments of all devices with the recorded history of allocations; None where nothing records it."""
        return None

    def record_memory_history(self, enabled: Any, *arguments: Any, **named: Any) -> None:
        """Record every allocation from now on; None ends it. Warns that nothing is recorded."""
        if enabled is not None:
            reason, instead = self._torchs_allocator("memory._record_memory_history")
            warnings.warn(f"no history is recorded: {reason}: {instead}", stacklevel=4)

    def memory_pool(self, *arguments: Any, **named: Any) -> Any:
        """A separate pool of memory. Raises flagos.UnsupportedError."""
        self._need_torchs_allocator("MemPool")

    def use_memory_pool(self, pool: Any, device: int) -> AbstractContextManager[None]:
        """Inside, this thread allocates from `pool`. Raises flagos.UnsupportedError."""
        self._need_torchs_allocator("use_mem_pool")

    def _need_torchs_allocator(self, what: str) -> NoReturn:
        self._unsupported(*self._torchs_allocator(what))

    def _torchs_allocator(self, what: str) -> tuple[str, str]:
        return (
            f"torch.flagos.{what} is of an allocator of torch's own, and the core allocates for vendor {self.vendor!r}",
            "memory_stats(), memory_snapshot() and memory_summary() say what is held",
        )

    # ---- random numbers

    keeps_seeds: bool = False
    """Whether generators are made when the device is initialised, and a seed is kept for them until then."""

    def seed(self, seed: int) -> None:
        """Seed the generator of the current device."""
        current = torch._C._accelerator_getDeviceIndex()
        torch.ops.flagos.default_generator(current).manual_seed(seed)

    def seed_all(self, seed: int) -> None:
        """Seed the generators of all devices."""
        for index in range(self.device_count()):
            torch.ops.flagos.default_generator(index).manual_seed(seed)

    # ---- other libraries

    def exported(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that DLPack and other interfaces of torch hand out in the place of a flagos tensor."""
        return tensor

    def _unsupported(self, reason: str, instead: str) -> NoReturn:
        raise _core.UnsupportedError(f"{reason}: {instead}")

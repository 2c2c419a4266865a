"""The device's caching allocator: statistics, limits, snapshots; pinned memory. All sizes are in bytes."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import torch

from flagos import _core
from torch_fl.flagos._device import get_device_properties
from torch_fl.flagos._lifecycle import _lazy_init, is_initialized
from torch_fl.flagos._utils import Device, _get_device_index
from torch_fl.native import native
from torch_fl.native.base import History, Segment

__all__ = [
    "empty_cache",
    "host_memory_stats",
    "host_memory_view",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


# Vendors whose kernels read and write pinned host memory at the address that the host has for it.
_SHARING_HOST_MEMORY = ("host", "cuda")

_FLAT_NAMES = {
    "allocated_bytes": "allocated_bytes.all.current",
    "reserved_bytes": "reserved_bytes.all.current",
    "peak_allocated_bytes": "allocated_bytes.all.peak",
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "num_alloc_calls": "allocation.all.allocated",
    "num_free_calls": "allocation.all.freed",
    "num_device_malloc": "num_device_alloc",
}


def empty_cache() -> None:
    """Return cached memory that is not in use to the system."""
    torch.accelerator.empty_cache()


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Statistics of the allocator by dotted name, in torch's names.

    PyTorch-Plugin-FL's names for some of them (`allocated_bytes`, `peak_reserved_bytes`,
    `num_device_malloc`) are there too. Empty before the first use of a device.
    """
    stats = torch.accelerator.memory_stats(_get_device_index(device, optional=True))
    if stats:
        stats.update({name: stats[dotted] for name, dotted in _FLAT_NAMES.items()})
    return stats


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """`memory_stats` with one level of dictionary per dot."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        if name in _FLAT_NAMES:
            continue  # these name dictionaries
        *parents, leaf = name.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = value
    return nested


def memory_allocated(device: Device = None) -> int:
    """Memory that tensors hold now."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Most memory that tensors held since the start, or since `reset_peak_memory_stats`."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Memory the allocator holds now, in use or cached."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Most memory the allocator held since the start, or since `reset_peak_memory_stats`."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Restart the peaks from the present values."""
    torch.accelerator.reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Restart the historical totals from zero."""
    torch.accelerator.reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def host_memory_stats() -> OrderedDict[str, int]:
    """Statistics of pinned memory by dotted name, as torch's own accelerators name them.

    Sizes are rounded up to a power of two, times are in microseconds. Empty before the first use of
    a device.
    """
    if not is_initialized():
        return OrderedDict()
    return OrderedDict(sorted(torch.ops.flagos.host_memory_stats().items()))


def reset_peak_host_memory_stats() -> None:
    """Restart the peaks of pinned memory from the present values."""
    _lazy_init()
    torch.ops.flagos.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Restart the historical totals of pinned memory from zero."""
    _lazy_init()
    torch.ops.flagos.reset_accumulated_host_memory_stats()


def host_memory_view(tensor: torch.Tensor, device: Device = None) -> torch.Tensor:
    """A tensor of `device` over the pinned memory of a CPU tensor, of its dtype, shape and strides; without history.

    What either side writes the other reads, once the device has been waited for. The view's storage keeps the CPU
    tensor's; wait for the device before the last of its tensors goes, because freed pinned memory is given out again.

    Raises TypeError if `tensor` is no dense CPU tensor, ValueError if its memory is not pinned, and
    UnsupportedError on a vendor whose kernels do not address the host's memory.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise TypeError(
            f"a view of host memory is of a dense tensor on cpu, and this one is {tensor.layout} on {tensor.device}"
        )
    _lazy_init()
    vendor = _core.vendor_info()
    if vendor["name"] not in _SHARING_HOST_MEMORY:
        raise _core.UnsupportedError(
            f"kernels of the {vendor['name']!r} vendor are not known to address the host's memory: copy the tensor, "
            "tensor.to('flagos', non_blocking=True)"
        )
    where = torch.device("flagos", _get_device_index(device, optional=True))
    memory = tensor.untyped_storage()
    if memory.nbytes() == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=where)
    if not tensor.is_pinned():
        raise ValueError(
            "only pinned memory has a view on the device: make the tensor with pin_memory=True, or call .pin_memory()"
        )
    shared = torch._C._construct_storage_from_data_pointer(
        memory.data_ptr(), where, memory.nbytes()
    )
    # Torch keeps a storage's Python object as long as any tensor uses the storage.
    shared._host_memory = memory  # type: ignore[attr-defined]
    with torch.no_grad():
        return torch.empty(0, dtype=tensor.dtype, device=where).set_(
            shared, tensor.storage_offset(), tensor.shape, tensor.stride()
        )


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total memory of `device`."""
    _lazy_init()
    return torch.accelerator.get_memory_info(_get_device_index(device, optional=True))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process use at most `fraction` (0 to 1) of the memory of `device`."""
    _lazy_init()
    native().set_memory_fraction(float(fraction), _get_device_index(device, optional=True))


def memory_snapshot(device: Device = None) -> list[Segment]:
    """Every segment the allocator holds and the blocks in it, in the layout of torch's own snapshots."""
    _lazy_init()
    return native().memory_snapshot(_get_device_index(device, optional=True))


def _record_memory_history(enabled: Any = "all", *arguments: Any, **named: Any) -> None:
    """Record every allocation from now on, with who made it; None ends it. The other arguments are torch's own.

    Warns, and records nothing, where the allocator is not torch's own: a program goes on without its memory snapshots.
    """
    native().record_memory_history(enabled, *arguments, **named)


def _snapshot(device: Device = None) -> History:
    """The allocator's segments, and the history where it is recorded, for pytorch.org/memory_viz."""
    recorded = native().memory_history()
    if recorded is not None:
        return recorded
    return {"segments": memory_snapshot(device), "device_traces": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write `_snapshot()` to a file."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


_SUMMARY_ROWS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Reserved memory", "reserved_bytes", True),
    ("Non-releasable memory", "inactive_split_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("Allocations", "allocation", False),
    ("Active allocations", "active", False),
    ("Segments", "segment", False),
    ("Non-releasable blocks", "inactive_split", False),
)
_SUMMARY_METRICS = ("current", "peak", "allocated", "freed")
_SUMMARY_POOLS = (
    ("all", ""),
    ("large_pool", "  from large pool"),
    ("small_pool", "  from small pool"),
)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics as a table for people; one line per statistic when `abbreviated`."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats(index)
    headings = ("Current", "Peak", "Total allocated", "Total freed")
    rule = "-" * (24 + 17 * len(headings))
    lines = [
        f"flagos:{index} {get_device_properties(index).name}",
        f"out of memory: {stats.get('num_ooms', 0)}    "
        f"retried after freeing the cache: {stats.get('num_alloc_retries', 0)}",
        rule,
        f"{'':<24}" + "".join(f"{heading:>17}" for heading in headings),
        rule,
    ]
    for title, statistic, is_size in _SUMMARY_ROWS:
        for pool, label in _SUMMARY_POOLS:
            if pool != "all" and abbreviated:
                continue
            names = [f"{statistic}.{pool}.{metric}" for metric in _SUMMARY_METRICS]
            if not all(name in stats for name in names):
                continue
            values = [int(stats[name]) for name in names]
            shown = (_size(value) if is_size else str(value) for value in values)
            lines.append(f"{label or title:<24}" + "".join(f"{value:>17}" for value in shown))
    lines.append(rule)
    return "\n".join(lines)


def _size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{nbytes} B" if unit == "B" else f"{value:.1f} {unit}"

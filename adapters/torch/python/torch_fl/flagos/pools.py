"""Separate pools of memory. CUDA's only: the allocator of the host vendor has one pool."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from flagos import _core
from torch_fl import _vendor
from torch_fl.flagos._utils import Device, _get_device_index

__all__ = ["MemPool", "use_mem_pool"]


def of_cuda(what: str) -> None:
    """Raise flagos.UnsupportedError unless CUDA's allocator serves the device."""
    if not _vendor.on_cuda():
        raise _core.UnsupportedError(
            f"torch.flagos.{what} is CUDA's allocator's, and vendor {_vendor.vendor()!r} serves the device here: "
            "memory_stats(), memory_snapshot() and memory_summary() say what is held"
        )


class MemPool:
    """`torch.cuda.MemPool`. Raises flagos.UnsupportedError where CUDA does not serve the device."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        of_cuda("MemPool")
        return torch.cuda.MemPool(*arguments, **named)


def use_mem_pool(pool: Any, device: Device = None) -> AbstractContextManager[None]:
    """Context manager: this thread allocates from `pool` inside it, on `device` (default: the current one)."""
    of_cuda("use_mem_pool")
    found: AbstractContextManager[None] = torch.cuda.use_mem_pool(
        pool, _get_device_index(device, optional=True)
    )
    return found

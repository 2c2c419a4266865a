"""Separate pools of memory, where torch's own allocator serves the device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch_fl.flagos._utils import Device, _get_device_index
from torch_fl.native import native

__all__ = ["MemPool", "use_mem_pool"]


class MemPool:
    """A pool of torch's own allocator. Raises flagos.UnsupportedError where it does not serve the device."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        return native().memory_pool(*arguments, **named)


def use_mem_pool(pool: Any, device: Device = None) -> AbstractContextManager[None]:
    """Context manager: this thread allocates from `pool` inside it, on `device` (default: the current one)."""
    return native().use_memory_pool(pool, _get_device_index(device, optional=True))

"""The double of Megatron-LM-FL's base class: its abstract names. `long_megatron.py` compares them with Megatron's."""

from __future__ import annotations

from abc import ABC
from abc import abstractmethod as _abstract
from typing import Any

METHODS = [
    "is_available",
    "get_device_properties",
    "get_device_capability",
    "is_synchronized_device",
    "use_host_timers",
    "resolves_data_dependency",
    "handles_memory_backpressure",
    "device_name",
    "device",
    "set_device",
    "current_device",
    "current_device_name",
    "device_count",
    "synchronize",
    "random",
    "set_rng_state",
    "get_rng_state",
    "manual_seed",
    "manual_seed_all",
    "initial_seed",
    "use_mem_pool",
    "stream",
    "set_stream",
    "current_stream",
    "default_stream",
    "empty_cache",
    "memory_allocated",
    "max_memory_allocated",
    "reset_max_memory_allocated",
    "memory_cached",
    "max_memory_cached",
    "reset_max_memory_cached",
    "memory_stats",
    "reset_peak_memory_stats",
    "memory_reserved",
    "max_memory_reserved",
    "total_memory",
    "available_memory",
    "is_bf16_supported",
    "is_fp16_supported",
    "supported_dtypes",
    "amp",
    "range",
    "range_push",
    "range_pop",
    "lazy_call",
    "is_triton_supported",
    "create_graph",
    "capture_to_graph",
    "replay_graph",
    "pin_memory",
    "is_pinned",
    "on_accelerator",
    "build_extension",
    "visible_devices_envs",
    "set_visible_devices_envs",
    "get_compile_backend",
    "set_compile_backend",
    "temperature",
    "power_draw",
    "utilization",
    "clock_rate",
]
PROPERTIES = [
    "MemPool",
    "Stream",
    "Event",
    "BFloat16Tensor",
    "ByteTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
]


class PlatformBase(ABC):  # noqa: B024  they are added below
    """The names, all abstract."""

    def __init__(self) -> None:
        self._name: Any = None
        self._communication_backend_name: Any = None


def _method(name: str) -> Any:
    def method(self: Any, *arguments: Any, **named: Any) -> Any: ...

    method.__name__ = name
    return _abstract(method)


for _name in METHODS:
    setattr(PlatformBase, _name, _method(_name))
for _name in PROPERTIES:
    setattr(PlatformBase, _name, property(_method(_name)))
PlatformBase.__abstractmethods__ = frozenset((*METHODS, *PROPERTIES))

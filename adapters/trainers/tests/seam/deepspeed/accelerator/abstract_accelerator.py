"""The double of DeepSpeed's base class: its abstract names. `long_deepspeed.py` compares them with DeepSpeed's."""

from __future__ import annotations

import os
from abc import ABC
from abc import abstractmethod as _abstract
from typing import Any

METHODS = [
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
    "default_generator",
    "stream",
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
    "is_available",
    "range_push",
    "range_pop",
    "lazy_call",
    "communication_backend_name",
    "is_triton_supported",
    "create_graph",
    "capture_to_graph",
    "replay_graph",
    "on_accelerator",
    "op_builder_dir",
    "create_op_builder",
    "get_op_builder",
    "build_extension",
    "export_envs",
    "visible_devices_envs",
    "set_visible_devices_envs",
    "get_compile_backend",
    "set_compile_backend",
]
PROPERTIES = [
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


class DeepSpeedAccelerator(ABC):  # noqa: B024  they are added below
    """The names, all abstract."""

    def __init__(self) -> None:
        self._name: Any = None
        self._communication_backend_name: Any = None


def _method(name: str) -> Any:
    def method(self: Any, *arguments: Any, **named: Any) -> Any: ...

    method.__name__ = name
    return _abstract(method)


#: What a newer release would have, for a test.
NEWER = os.environ.get("ABSTRACT", "").split()
for _name in (*METHODS, *NEWER):
    setattr(DeepSpeedAccelerator, _name, _method(_name))
for _name in PROPERTIES:
    setattr(DeepSpeedAccelerator, _name, property(_method(_name)))
DeepSpeedAccelerator.__abstractmethods__ = frozenset((*METHODS, *NEWER, *PROPERTIES))

"""`torch.flagos`: devices, streams, memory and random numbers of the `flagos` device.

The names and their meaning are those of torch's own device modules, so that device-generic code finds
here what it looks for. Streams and events are torch's own generic classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_fl.flagos import _utils, amp, graphs, late_names, memory, random, tensor_types
from torch_fl.flagos._device import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    exchange_device,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    is_bf16_supported,
    maybe_exchange_device,
    set_device,
)
from torch_fl.flagos._lifecycle import (
    _is_in_bad_fork,
    _lazy_init,
    init,
    is_initialized,
)
from torch_fl.flagos._stream import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)
from torch_fl.flagos.amp import get_amp_supported_dtype, is_autocast_available
from torch_fl.flagos.graphs import (
    Graph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_fl.flagos.marks import mark
from torch_fl.flagos.memory import (
    empty_cache,
    host_memory_stats,
    host_memory_view,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_fl.flagos.pools import MemPool, use_mem_pool
from torch_fl.flagos.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_fl.native import DeviceProperties

if TYPE_CHECKING:
    import torch

    _initialized: bool
    default_generators: tuple[torch.Generator, ...]

__all__ = [
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "Graph",
    "MemPool",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "exchange_device",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "graph",
    "graph_pool_handle",
    "graphs",
    "host_memory_stats",
    "host_memory_view",
    "init",
    "initial_seed",
    "is_autocast_available",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "mark",
    "max_memory_allocated",
    "max_memory_reserved",
    "maybe_exchange_device",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "use_mem_pool",
]

# torch reads these with getattr on the device module; they are not part of the public surface.
_exchange_device = exchange_device
_maybe_exchange_device = maybe_exchange_device
_PRIVATE = (_utils, _is_in_bad_fork, _lazy_init)


def __getattr__(name: str) -> object:
    if name == "_initialized":  # activation checkpointing reads it to decide whether to save RNG
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    make = late_names.find(name)
    if make is not None:
        return make()
    if name in tensor_types.NAMES:
        return globals().setdefault(name, tensor_types.make(name))
    replacement = late_names.ELSEWHERE.get(name)
    instead = f"; in its place use {replacement}" if replacement else ""
    raise AttributeError(f"module 'torch.flagos' has no attribute {name!r}{instead}")

"""`torch.cuda`: functions of `torch.flagos` under its names, and refusals for what has no counterpart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from flagos import UnsupportedError
from torch_fl import flagos
from torch_fl.cuda_names import callers, nvtx
from torch_fl.flagos import late_names, tensor_types

_SUBMODULES = ("amp", "graphs", "memory", "random", "streams")
"""Modules that programs import functions from directly."""

_KEPT = frozenset(
    {
        # Types of errors, and names that ask nothing of a device.
        "AcceleratorError",
        "CudaError",
        "DeferredCudaCallError",
        "OutOfMemoryError",
        "check_error",
        "cudaStatus",
        "has_half",
        "has_magma",
        # Modules whose functions refuse where they need NVIDIA's libraries.
        "jiterator",
        "nccl",
        "profiler",
        "sparse",
        "streams",
        "tunable",
        # Modules that the loop over `_SUBMODULES` fills.
        "amp",
        "graphs",
        "memory",
        "random",
    }
)

_PRIVATE = ("_lazy_init", "_is_in_bad_fork", "_exchange_device", "_maybe_exchange_device")
"""Names without the promise of a public one, which torch and programs read from every device module."""


class _EventType(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Event)

    def __getattr__(cls, name: str) -> Any:
        return getattr(torch.Event, name)


class Event(metaclass=_EventType):
    """`torch.cuda.Event`, whose first argument is not a device. Its events are of torch's class, as torch demands."""

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        """An event of the current device."""
        return torch.Event(
            "flagos", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def install() -> None:
    """Replace the names of `torch.cuda`."""
    cuda = torch.cuda
    translated = _translated()
    modules = [getattr(cuda, name) for name in _SUBMODULES]
    for name in dict.fromkeys((*cuda.__all__, *_PRIVATE)):
        if name in translated:
            value = translated[name]
        elif name in _KEPT:
            continue
        else:
            value = getattr(flagos, name, None) or _refusal(name)
        for owner in (cuda, *modules):
            if owner is cuda or name in vars(owner):
                setattr(owner, name, value)
    for name in tensor_types.NAMES:
        setattr(cuda, name, getattr(flagos, name))
    cuda._initialized = True
    nvtx.install()
    # The generators are made, and the device initialised, when they are asked for.
    vars(cuda).pop("default_generators", None)
    setattr(cuda, "__getattr__", _late)  # noqa: B010


def _late(name: str) -> object:
    if name == "default_generators":
        return flagos.default_generators
    raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}")


def _translated() -> dict[str, Any]:
    """Names of `torch.cuda` whose counterpart has another name or another form."""
    return {
        "is_available": _unless_torch_asks(torch.cuda.is_available, flagos.is_available),
        "device_count": _unless_torch_asks(torch.cuda.device_count, flagos.device_count),
        "CUDAGraph": flagos.Graph,
        "Event": Event,
        "get_stream_from_external": flagos.ExternalStream,
        "default_generators": (),
        "memory_cached": flagos.memory_reserved,
        "max_memory_cached": flagos.max_memory_reserved,
        "reset_max_memory_allocated": flagos.reset_peak_memory_stats,
        "reset_max_memory_cached": flagos.reset_peak_memory_stats,
        "ipc_collect": _nothing_to_collect,
        "is_tf32_supported": _no_tf32,
        "device_memory_used": _device_memory_used,
        "nvtx": torch.cuda.nvtx,
    }


def _unless_torch_asks(own: Callable[[], Any], ours: Callable[[], Any]) -> Callable[[], Any]:
    """`ours` for programs, and `own` for torch, which must not take flagos for NVIDIA's device."""

    def answer() -> Any:
        return own() if callers.is_torch(1) else ours()

    answer.__name__, answer.__doc__ = ours.__name__, ours.__doc__
    return answer


def _nothing_to_collect() -> None:
    """Nothing: shared memory of flagos is given back with its last tensor."""


def _no_tf32() -> bool:
    """False: TF32 is a format of NVIDIA's tensor cores."""
    return False


def _device_memory_used(device: Any = None) -> int:
    """Bytes of the device's memory in use, by all processes."""
    free, total = flagos.mem_get_info(device)
    return int(total - free)


def _refusal(name: str) -> Callable[..., NoReturn]:
    instead = late_names.ELSEWHERE.get(name, "nothing: it is NVIDIA's alone")

    def refuse(*arguments: Any, **named: Any) -> NoReturn:
        raise UnsupportedError(
            f"torch.cuda.{name} has no counterpart where cuda means flagos; in its place use {instead}"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse

"""What Megatron-LM-FL and TransformerEngine take of `torch.cuda`, where `torch.flagos` has it otherwise or not at all.

Other names are those of `torch.flagos`. An access to a name that only CUDA has raises AttributeError, which says so.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from flagos import UnsupportedError
from torch_fl.cuda_names import nvtx

__all__ = [
    "CUDAPluggableAllocator",
    "OutOfMemoryError",
    "get_device_capability",
    "get_device_properties",
    "nvtx",
]

OutOfMemoryError = torch.OutOfMemoryError

#: Names that `retarget` reads here instead of in `torch.flagos`.
SPECIAL = frozenset(
    (
        *__all__,
        *("CUDAGraph", "_lazy_call", "_lazy_init", "random"),
        *("check_error", "cudart", "device_memory_used"),
    )
)
_ONLY_CUDA = {
    "check_error": "it checks results of CUDA's runtime",
    "cudart": "it is CUDA's runtime: leave out --profile, or take --use-pytorch-profiler",
    "device_memory_used": "the driver's figure is CUDA's: torch.flagos.mem_get_info has the device's",
}


# The trainers compare a device's generation with NVIDIA's numbers, which other vendors do not have: theirs have what
# the first generation with bfloat16 has, and none of the FP8 kernels of later ones.
_WITH_BFLOAT16 = (8, 0)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The generation of a device in NVIDIA's numbers."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_device_properties(device: Any = None) -> Any:
    """The properties of a device, with its generation in NVIDIA's numbers."""
    found = torch.flagos.get_device_properties(device)  # type: ignore[attr-defined]
    if found.vendor == "cuda":
        return found
    names = [name for name in dir(found) if not name.startswith("_")]
    values = {name: getattr(found, name) for name in names}
    return SimpleNamespace(**{**values, "major": _WITH_BFLOAT16[0], "minor": _WITH_BFLOAT16[1]})


class CUDAPluggableAllocator:
    """Megatron imports the class whether or not an option needs it. Raises UnsupportedError where it is made."""

    def __init__(self, *arguments: Any) -> None:
        raise UnsupportedError(
            "allocators in C are CUDA's, and flagos has its own: leave out --use-nccl-ub and unified memory"
        )


def _lazy_call(callback: Callable[[], Any], **kwargs: Any) -> None:
    callback()


def _lazy_init() -> None:
    torch.flagos.init()  # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    if name == "CUDAGraph":
        return torch.flagos.Graph  # type: ignore[attr-defined]
    if name == "random":
        return torch.flagos.random  # type: ignore[attr-defined]
    if name in _ONLY_CUDA:
        _only_cuda(name)
    return getattr(torch.flagos, name)  # type: ignore[attr-defined]


def _only_cuda(name: str) -> NoReturn:
    raise AttributeError(f"torch.cuda.{name} has no counterpart on flagos: {_ONLY_CUDA[name]}")

"""What Megatron-LM-FL takes of `torch.cuda`, where `torch.flagos` has it under another name or not at all.

Other names are those of `torch.flagos`. An access to a name that only CUDA has raises AttributeError, which says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from flagos import UnsupportedError
from flagos_trainers.megatron import ranges as nvtx

__all__ = ["CUDAPluggableAllocator", "OutOfMemoryError", "nvtx"]

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

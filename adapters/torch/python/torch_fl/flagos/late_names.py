"""Names of `torch.flagos` that rooms above it provide, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable

#: Names of `torch.cuda` that a moved program may ask for, and what to write in their place.
ELSEWHERE = {
    "CUDAGraph": "torch.flagos.Graph",
    "cudart": "nothing: no runtime of one vendor lies under every device",
    "ipc_collect": "nothing: shared memory is freed with its last tensor",
    "is_tf32_supported": "torch.set_float32_matmul_precision, which every vendor understands",
    "nccl": "torch.distributed with the backend flagos",
    "nvtx": "torch.profiler.record_function",
    "profiler": "torch.profiler",
    "reset_max_memory_allocated": "torch.flagos.reset_peak_memory_stats",
    "set_sync_debug_mode": "nothing: no vendor but CUDA has it",
    "utilization": "the vendor's own tool, such as nvidia-smi",
}

_makers: dict[str, Callable[[], object]] = {}


def provide(name: str, make: Callable[[], object]) -> None:
    """Have `torch.flagos.<name>` be what `make` returns."""
    _makers[name] = make


def find(name: str) -> Callable[[], object] | None:
    """The function that makes the object of that name; None if nobody provides it."""
    return _makers.get(name)

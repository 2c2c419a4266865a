"""The double of a module that says `cuda` in each of the ways."""

import torch
import torch.cuda.nvtx as nvtx
from torch.cuda import _lazy_call, device


def places(x: torch.Tensor) -> dict[str, object]:
    """What each way means in this process."""
    called = []
    _lazy_call(lambda: called.append(True))
    with nvtx.range("a range"), device(0):
        moved = x.cuda()
    return {
        "count": torch.cuda.device_count(),
        "graph": torch.cuda.CUDAGraph,
        "made": torch.zeros(2, device="cuda").device.type,
        "numbered": torch.zeros(2, device=f"cuda:{0}").device.type,
        "moved": moved.device.type,
        "asked": moved.is_cuda,
        "backend": "nccl",
        "called": called,
    }

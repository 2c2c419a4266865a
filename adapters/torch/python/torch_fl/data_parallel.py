"""`torch.nn.DataParallel` over several flagos devices: torch has its copies between devices for CUDA alone."""

from __future__ import annotations

import functools
from typing import Any

import torch

_DEVICE = "flagos"


def install() -> None:
    """Have it say so when it is made, instead of asking for NVIDIA's driver when it is called. Idempotent."""
    theirs = torch.nn.DataParallel.__init__
    if getattr(theirs, "__module__", None) == __name__:
        return

    @functools.wraps(theirs, assigned=("__doc__", "__name__", "__qualname__"))
    def initialize(self: Any, module: torch.nn.Module, *arguments: Any, **named: Any) -> None:
        theirs(self, module, *arguments, **named)
        devices = getattr(self, "device_ids", [])
        parameter = next(module.parameters(), None)
        if parameter is not None and parameter.device.type == _DEVICE and len(devices) > 1:
            raise NotImplementedError(
                f"torch.nn.DataParallel over the flagos devices {devices}: torch copies between devices of CUDA alone "
                "there. Use torch.nn.parallel.DistributedDataParallel, a process a device under torchrun, or "
                "device_ids=[0]"
            )

    torch.nn.DataParallel.__init__ = initialize  # type: ignore[method-assign]

"""`cuda` as a name of the flagos device, for programs that were written for NVIDIA's.

It is opt in: `FLAGOS_ALIAS_CUDA=1`, `flagos run`, or `torch.flagos.alias_cuda()` before the program asks for a device.
Device strings are read by libtorch, where one comparison is added (csrc/runtime/device_names.cc); names of Python are
replaced here. Without it nothing of torch changes. torch's own code keeps its view: it sees no CUDA device, and treats
flagos as it treats every device from outside.
"""

from __future__ import annotations

import logging
import threading

import torch

from flagos import _core

VARIABLE = "FLAGOS_ALIAS_CUDA"

_lock = threading.Lock()
_aliased = False


def is_requested() -> bool:
    """Whether the environment asks for the alias. Raises flagos.ConfigError for a value that is no flag."""
    return _core.environment_flag(VARIABLE)


def is_aliased() -> bool:
    """Whether `cuda` means flagos in this process."""
    return _aliased


def alias_cuda() -> None:
    """Let `cuda` mean flagos in this process, for good: device strings, `torch.cuda`, `.cuda()`, autocast, `nccl`.

    Objects that exist keep their device. Raises RuntimeError, and changes nothing, where torch has CUDA devices of its
    own, and where this build of torch reads device strings in a way that flagos does not know.
    """
    global _aliased
    with _lock:
        if _aliased:
            return
        _refuse_beside_cuda()
        torch.device("flagos")  # registers the device where that waits for a program that asks
        from torch_fl import _C
        from torch_fl.cuda_names import arguments, module, serialization, tensors

        _C.alias_cuda()
        for part in (module, tensors, arguments, serialization):
            part.install()
        _aliased = True
    logging.getLogger("flagos").info("cuda means flagos in this process (%s)", VARIABLE)


def _refuse_beside_cuda() -> None:
    # This counts by NVIDIA's management library where it can, and then does not initialise CUDA.
    count = torch.cuda.device_count()
    if count:
        devices = "a CUDA device" if count == 1 else f"{count} CUDA devices"
        raise RuntimeError(
            f"torch has {devices} here, so `cuda` keeps its meaning: write device='flagos' in the program, or run it "
            f"without {VARIABLE} (CUDA_VISIBLE_DEVICES= hides the devices)"
        )

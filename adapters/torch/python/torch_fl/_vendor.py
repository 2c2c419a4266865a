"""The native device that serves flagos tensors in this process: the CPU, or torch's own CUDA.

The core chooses the vendor (FLAGOS_VENDOR, or the best one present); this module says what that
means to torch. Nothing here initialises a device.
"""

from __future__ import annotations

from functools import cache

import torch

from flagos import _core

_NATIVE_OF_VENDOR = {"host": "cpu", "cuda": "cuda"}


@cache
def vendor() -> str:
    """The vendor that serves this process, such as "host".

    Raises ImportError for a vendor this torch cannot reach. A mistake in the configuration is told
    at the first use of a device.
    """
    chosen = _core.vendor()
    if chosen not in _NATIVE_OF_VENDOR:
        raise ImportError(
            f"the torch adapter has no native device for vendor {chosen!r}; it serves "
            f"{', '.join(sorted(_NATIVE_OF_VENDOR))}: set FLAGOS_VENDOR to one of them"
        )
    if chosen == "cuda" and not torch.backends.cuda.is_built():
        raise ImportError(
            "an NVIDIA device is there, but this torch was built without CUDA; install a CUDA build "
            "of torch, or set FLAGOS_VENDOR=host to leave the device alone"
        )
    return chosen


def is_known_to_torch() -> bool:
    """Whether the device that would serve flagos is one of torch's own, under another name.

    Opens nothing, and does not ask whether this torch can reach it.
    """
    return _NATIVE_OF_VENDOR.get(_core.vendor(), "cpu") != "cpu"


def accelerator() -> str:
    """The chip that serves the device, such as "cuda"; "" for the CPU."""
    return "" if vendor() == "host" else vendor()


def native() -> str:
    """The device type that serves flagos tensors: "cpu" or "cuda"."""
    return _NATIVE_OF_VENDOR[vendor()]


def on_cuda() -> bool:
    """True where CUDA serves flagos tensors."""
    return native() == "cuda"

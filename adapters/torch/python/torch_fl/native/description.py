"""What the core says of the vendor that serves this process. Opens no device, and registers nothing with torch."""

from __future__ import annotations

from functools import cache
from typing import Literal, TypedDict

import torch

from flagos import _core


class Description(TypedDict):
    """What is special about a vendor, as data."""

    name: str
    serving: Literal["host", "torch", "library"]
    torch_device_type: str | None
    triton_backend: str | None
    dlpack_device_type: int
    device_lost: list[str]


@cache
def description() -> Description:
    """The description of the vendor that serves this process.

    A mistake in the configuration is told at the first use of a device.
    """
    name = _core.vendor()
    known: dict[str, Description] = {
        "host": {
            "name": "host",
            "serving": "host",
            "torch_device_type": None,
            "triton_backend": None,
            "dlpack_device_type": 1,
            "device_lost": [],
        },
        "cuda": {
            "name": "cuda",
            "serving": "torch",
            "torch_device_type": "cuda",
            "triton_backend": "nvidia",
            "dlpack_device_type": 2,
            "device_lost": [],
        },
    }
    if name not in known:
        raise ImportError(f"the torch adapter has no description of vendor {name!r}")
    return known[name]


def is_known_to_torch() -> bool:
    """Whether the device that would serve flagos is one of torch's own, under another name.

    Does not ask whether this build of torch has it.
    """
    return description()["serving"] == "torch"


def built_into_torch(device_type: str) -> bool:
    """Whether this build of torch has that device type of its own."""
    return bool(getattr(torch._C, f"_has_{device_type}", False))

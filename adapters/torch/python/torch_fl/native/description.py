"""The core's description of the vendor that serves this process. Opens no device, and registers nothing with torch."""

from __future__ import annotations

from functools import cache

import torch

from flagos import _core
from flagos.runtime import VendorInfo as Description
from torch_fl.native import cuda_runtime

__all__ = ["Description", "built_into_torch", "description", "is_known_to_torch"]


@cache
def description() -> Description:
    """The description of the vendor that serves this process.

    Where torch's device type cuda is another vendor's than NVIDIA's, that vendor is tried first. A mistake in the
    configuration is told at the first use of a device. Raises flagos.FlagosError for a vendor's library that cannot be
    loaded.
    """
    own = cuda_runtime.vendors()[0]
    if own != cuda_runtime.NVIDIA:
        _core.prefer_vendor(own)
    return _core.vendor_info()


def is_known_to_torch() -> bool:
    """Whether the device that would serve flagos is one of torch's own, under another name.

    Does not ask whether this build of torch has it.
    """
    return description()["serving"] == "torch"


def built_into_torch(device_type: str) -> bool:
    """Whether this build of torch has that device type of its own."""
    return bool(getattr(torch._C, f"_has_{device_type}", False))

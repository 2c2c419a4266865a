"""How torch computes on the device: one object, `native()`, of one of three ways of serving.

- `HostNative`: torch's CPU kernels compute on device memory, which is the host's;
- `TorchNative`: another device type of this torch has the memory, the streams and the kernels. What is special about
  one type is in a package of its name, its *room* (see `rooms`);
- `LibraryNative`: kernels of the vendor's library compute, and CPU kernels on copies compute everything else.

Which one it is, and everything else that is special about a vendor, the core describes (`description`). All code
above asks `native()` for what it can do, and never who the vendor is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from torch_fl.native.base import DeviceProperties, Native
from torch_fl.native.description import Description, description

__all__ = ["DeviceProperties", "Native", "native"]


@cache
def native() -> Native:
    """How torch computes on the device in this process. Initialises nothing.

    Raises ImportError for a vendor that this torch cannot reach.
    """
    described = description()
    return _WAYS[described["serving"]](described)


def _by_the_host(described: Description) -> Native:
    from torch_fl.native.host import HostNative

    return HostNative(described)


def _by_torch(described: Description) -> Native:
    from torch_fl.native import rooms

    kind = rooms.require(described)
    found: Native = kind(described)
    return found


def _by_the_library(described: Description) -> Native:
    from torch_fl.native.library import LibraryNative

    return LibraryNative(described)


_WAYS: dict[str, Callable[[Description], Native]] = {
    "host": _by_the_host,
    "torch": _by_torch,
    "library": _by_the_library,
}

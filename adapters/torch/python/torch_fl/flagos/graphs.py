"""Graph capture. The host vendor has none, and says so rather than running eagerly in disguise."""

from __future__ import annotations

from typing import Any, NoReturn

from flagos import _core

__all__ = [
    "Graph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]


def _refuse(what: str) -> NoReturn:
    from torch_fl.flagos._device import get_device_properties

    vendor = get_device_properties().vendor
    raise _core.UnsupportedError(
        f"{what} needs stream capture, which the {vendor!r} vendor does not have: it runs kernels "
        "as host functions and records no launches; run the region eagerly or use torch.compile"
    )


class Graph:
    """A recorded sequence of launches, as torch.cuda.CUDAGraph is."""

    def __init__(self, keep_graph: bool = False) -> None:
        _refuse("torch.flagos.Graph")


class graph:
    """Context manager that records what is submitted inside into a Graph."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("torch.flagos.graph")


def graph_pool_handle() -> tuple[int, int]:
    """A memory pool that several graphs may share."""
    _refuse("torch.flagos.graph_pool_handle")


def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
    """Callables that replay recorded graphs."""
    _refuse("torch.flagos.make_graphed_callables")


def is_current_stream_capturing() -> bool:
    """True while the current stream is being recorded: never on a vendor without capture."""
    return False

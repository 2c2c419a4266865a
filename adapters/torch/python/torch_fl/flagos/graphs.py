"""Graph capture by the native device or the core. A device without it says so, rather than run eagerly in disguise."""

from __future__ import annotations

from typing import Any, NoReturn

from flagos import _core
from torch_fl.flagos import automatic
from torch_fl.flagos.automatic import auto, counts, followed_calls, is_auto, native_calls
from torch_fl.native import native

__all__ = [
    "Graph",
    "auto",
    "counts",
    "followed_calls",
    "graph",
    "graph_pool_handle",
    "is_auto",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "native_calls",
]


def _refuse(what: str) -> NoReturn:
    ours = native()
    raise _core.UnsupportedError(
        f"{what} needs stream capture, which the {ours.vendor!r} vendor does not have: {ours.why_no_graphs}"
    )


class Graph:
    """A recorded sequence of launches. Raises flagos.UnsupportedError on a device without capture."""

    def __new__(cls, keep_graph: bool = False) -> Any:
        _refuse("torch.flagos.Graph")


class graph:
    """Context manager that records the work submitted inside it. Raises flagos.UnsupportedError likewise."""

    def __init__(self, cuda_graph: Any, *args: Any, **kwargs: Any) -> None:
        _refuse("torch.flagos.graph")


def graph_pool_handle() -> Any:
    """A memory pool that several graphs may share. Raises flagos.UnsupportedError likewise."""
    _refuse("torch.flagos.graph_pool_handle")


def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
    """Callables that replay recorded graphs. Raises flagos.UnsupportedError likewise."""
    _refuse("torch.flagos.make_graphed_callables")


def is_current_stream_capturing() -> bool:
    """True while the current stream is being recorded: never on a device without capture."""
    return False


_of_the_device = native().graphs
if native().captured_by_core:
    from torch_fl.flagos import _core_graphs as _of_the_device
if _of_the_device is not None:
    globals().update(
        (name, getattr(_of_the_device, name)) for name in __all__ if name not in automatic.__all__
    )

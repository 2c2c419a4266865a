"""Automatic graphs: calls that repeat are captured in chunks and launched by graphs when they come again."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["auto", "counts", "followed_calls", "is_auto", "native_calls"]

_ops = torch.ops.flagos

# What gives addresses of a storage to the program, or its bytes, without a call of an operator.
_METHODS_OF_STORAGES = (
    "__getitem__",
    "__setitem__",
    "_byteswap",
    "_set_from_file",
    "_share_fd_cpu_",
    "_share_filename_cpu_",
    "_write_file",
    "data_ptr",
    "fill_",
)


class _Scope:
    """A scope of `auto`. Those of several threads may overlap: the one that began last decides."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled


_lock = threading.Lock()
_scopes: list[_Scope] = []
_outside = False  # what holds outside of all scopes


@contextmanager
def auto(enabled: bool = True) -> Iterator[None]:
    """Turn automatic graphs on, or off, for the calls of a scope, of all threads.

    Where scopes of several threads overlap, the one that began last decides, and behind the last of them is what was
    before the first.
    Results, gradients and errors are those of the program without graphs, if it takes the addresses of tensors
    (`data_ptr()`) inside of such scopes, or behind the first. Raises NotImplementedError on a vendor without graphs.
    """
    global _outside
    if not isinstance(enabled, bool):
        raise TypeError(f"auto() takes True or False, not {enabled!r}")
    scope = _Scope(enabled)
    with _lock:
        if not _scopes:
            _outside = is_auto()
        turn(enabled)
        _scopes.append(scope)
    try:
        yield
    finally:
        with _lock:
            _scopes.remove(scope)
            turn(_scopes[-1].enabled if _scopes else _outside)


def is_auto() -> bool:
    """Whether the calls of the process are followed by automatic graphs."""
    return bool(_ops.graphs_wanted())


def counts() -> dict[str, int]:
    """What automatic graphs did since the process began: numbers of calls, graphs and bytes, by what they count.

    Keys that begin with `native: ` give the reasons of calls that no graph launched; `captured up to: ` and
    `launched early: ` say what ended a graph.
    """
    return dict(sorted(_ops.graphs_counts().items()))


def followed_calls() -> dict[str, int]:
    """The calls that were followed: their numbers by operator, the most first."""
    calls: dict[str, int] = dict(_ops.graphs_followed_calls())
    return dict(sorted(calls.items(), key=lambda one: (-one[1], one[0])))


def native_calls() -> dict[str, dict[str, int]]:
    """The calls that ran natively while graphs were on: their numbers by operator and by reason, the most first."""
    calls = _ops.graphs_native_calls().items()
    most = sorted(calls, key=lambda one: -sum(one[1].values()))
    return {op: dict(sorted(reasons.items())) for op, reasons in most}


def turn(on: bool) -> None:
    """Turn automatic graphs on or off, from now on."""
    _ops.graphs_want(on)
    if on:
        watch_addresses()


@functools.cache
def watch_addresses() -> None:
    """Has the device know of each address that the program takes.

    No call on that memory is followed any more, and calls that a queue has are handed over before.
    """
    torch.Tensor.data_ptr = _lending(torch.Tensor.data_ptr, torch.Tensor.untyped_storage)  # type: ignore[method-assign]
    for name in _METHODS_OF_STORAGES:
        setattr(torch.UntypedStorage, name, _lending(getattr(torch.UntypedStorage, name), _itself))


def _itself(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return storage


def _lending(method: Callable[..., Any], storage_of: Callable[[Any], torch.UntypedStorage]) -> Any:
    @functools.wraps(method)
    def lending(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "flagos":
            _ops.graphs_lend(storage_of(self))
        return method(self, *args, **kwargs)

    return lending

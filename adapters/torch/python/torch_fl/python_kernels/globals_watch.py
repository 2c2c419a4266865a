"""Drops recordings when a global that a recorded function has read changes.

CPython 3.12 notifies of changes to dictionaries (`PyDict_AddWatcher`), so watching costs nothing until a
change.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from types import FrameType
from typing import Any

import torch

Scope = dict[str, Any]
"""The globals of a module."""

# Libraries whose globals are not watched: calls do not depend on them, and some change all the time
# (`warnings.filters` with every `catch_warnings`).
_NOT_WATCHED = {"torch", "triton", "torch_fl", "flagos", "numpy", "sympy", "mpmath"}
_NOT_WATCHED |= sys.stdlib_module_names

_watched: dict[int, Scope] = {}
_watcher: int | None = None


class Scopes:
    """Context manager that collects the globals of the functions called inside it."""

    def __init__(self) -> None:
        self._found: dict[int, Scope] = {}
        self._codes: set[Any] = set()
        self._previous: Any = None

    def __enter__(self) -> Scopes:
        self._previous = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._previous)

    def _called(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._codes:
            return
        self._codes.add(code)
        scope = frame.f_globals
        module = scope.get("__name__", "")
        if code.co_names and module.partition(".")[0] not in _NOT_WATCHED:
            self._found[id(scope)] = scope

    def found(self) -> list[Scope]:
        """The collected globals that belong to the implementation."""
        return list(self._found.values())

    def watch(self) -> None:
        """Drop all recordings at a later change of one of the collected globals."""
        for key, scope in self._found.items():
            if key not in _watched:
                _watch(scope)
                _watched[key] = scope  # kept alive, so that no other object gets its address


def _watch(scope: Scope) -> None:
    global _watcher
    api = ctypes.pythonapi
    if _watcher is None:
        # The callback is C++ and only counts: CPython allows no Python code in it, since an exception may be pending
        # and two threads may change the same global.
        watcher = api.PyDict_AddWatcher(ctypes.c_void_p(torch.ops.flagos.dictionary_watcher()))
        if watcher < 0:
            raise RuntimeError("CPython has no place left for a watcher of dictionaries")
        _watcher = watcher
        # The interpreter empties modules while it ends.
        atexit.register(api.PyDict_ClearWatcher, _watcher)
    if api.PyDict_Watch(_watcher, ctypes.py_object(scope)) != 0:
        raise RuntimeError("a module's globals cannot be watched")

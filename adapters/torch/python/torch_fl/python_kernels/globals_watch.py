"""Forgetting recordings when a global that a recorded function has read is changed.

CPython 3.12 tells of changes to dictionaries (`PyDict_AddWatcher`), so that watching costs nothing until
one is changed.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from types import FrameType
from typing import Any

import torch

# Code that is not the implementation's own: its globals are not what a call depends on, and some change all the
# time (`warnings.filters` with every `catch_warnings`).
_NOT_WATCHED = {"torch", "triton", "torch_fl", "flagos", "numpy", "sympy", "mpmath"}
_NOT_WATCHED |= sys.stdlib_module_names

_watched: dict[int, dict[str, Any]] = {}
_watcher: int | None = None


class Scopes:
    """The globals of the functions called while it is entered."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Any]] = {}
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

    def found(self) -> list[dict[str, Any]]:
        """Those that are the implementation's own."""
        return list(self._found.values())

    def watch(self) -> None:
        """Have changes to them forget every recording from now on."""
        for key, scope in self._found.items():
            if key not in _watched:
                _watch(scope)
                _watched[key] = scope  # kept: its address stays its own


def _watch(scope: dict[str, Any]) -> None:
    global _watcher
    api = ctypes.pythonapi
    if _watcher is None:
        # Code of the extension, which only counts: CPython allows it no more (a pending exception, two
        # threads that change the same global).
        watcher = api.PyDict_AddWatcher(ctypes.c_void_p(torch.ops.flagos.dictionary_watcher()))
        if watcher < 0:
            raise RuntimeError("CPython has no place left for a watcher of dictionaries")
        _watcher = watcher
        # Modules are emptied while the interpreter ends.
        atexit.register(api.PyDict_ClearWatcher, _watcher)
    if api.PyDict_Watch(_watcher, ctypes.py_object(scope)) != 0:
        raise RuntimeError("a module's globals cannot be watched")

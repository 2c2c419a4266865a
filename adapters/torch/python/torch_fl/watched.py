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

# Code that is not the implementation's own: its globals are not what a call depends on.
_NOT_WATCHED = (
    "torch",
    "triton",
    "torch_fl",
    "flagos",
    "logging",
    "contextlib",
    "threading",
    "importlib",
)

_names: dict[int, tuple[dict[str, Any], set[str]]] = {}
_watcher: int | None = None
_callback: Any = None


class Names:
    """The globals that are read while it is entered, by the functions called meanwhile."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self._codes: set[Any] = set()
        self._previous: Any = None

    def __enter__(self) -> Names:
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
        if module.partition(".")[0] not in _NOT_WATCHED:
            names = self._found.setdefault(id(scope), (scope, set()))[1]
            names.update(name for name in code.co_names if name in scope)

    def watch(self) -> None:
        """Have changes to them forget every recording from now on."""
        for key, (scope, names) in self._found.items():
            known = _names.get(key)
            if known is None:
                _watch(scope)
                _names[key] = (scope, set(names))
            elif not names <= known[1]:
                _names[key] = (scope, known[1] | names)


def _watch(scope: dict[str, Any]) -> None:
    global _watcher, _callback
    api = ctypes.pythonapi
    if _watcher is None:
        kind = ctypes.PYFUNCTYPE(
            ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )
        _callback = kind(_changed)
        _watcher = api.PyDict_AddWatcher(_callback)
        if _watcher < 0:
            raise RuntimeError("CPython has no place left for a watcher of dictionaries")
        # Modules are emptied while the interpreter ends.
        atexit.register(api.PyDict_ClearWatcher, _watcher)
    if api.PyDict_Watch(_watcher, ctypes.py_object(scope)) != 0:
        raise RuntimeError("a module's globals cannot be watched")


def _changed(event: int, scope: int, key: int | None, value: int | None) -> int:
    known = _names.get(scope)
    name = ctypes.cast(key, ctypes.py_object).value if key else None
    if known is not None and (name is None or name in known[1]):
        torch.ops.flagos.forget_recordings()
    return 0

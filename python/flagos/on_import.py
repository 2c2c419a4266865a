"""Completions of other libraries' modules at the moment of their import.

An import from here would cost time in programs that do not use them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flagos.messages import described

_completions: dict[str, list[Callable[[], None]]] = {}


def when_imported(module: str, completion: Callable[[], None]) -> None:
    """Calls ``completion`` now if ``module`` is loaded, otherwise after its import, which may have begun.

    A failure becomes a warning: the module must stay usable for other devices. A completion registered
    twice is called once.
    """
    known = _completions.setdefault(module, [])
    if completion in known:
        return
    known.append(completion)
    loaded = sys.modules.get(module)
    if loaded is not None:
        spec = loaded.__spec__
        if not getattr(spec, "_initializing", False):
            _complete(module, completion)
        elif type(spec) is importlib.machinery.ModuleSpec:
            # Such as accelerate, which imports torch, and torch us.
            spec.__class__ = _BeingImported
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _complete(name: str, completion: Callable[[], None]) -> None:
    try:
        completion()
    except Exception as error:
        # An unknown version of the module must stay usable for other devices.
        warnings.warn(
            f"{name} was imported as it is, without flagos: {described(error)}",
            RuntimeWarning,
            stacklevel=2,
        )


class _BeingImported(importlib.machinery.ModuleSpec):
    """The specification of a module that ran before there was a completion: it runs them when the import ends.

    Its loader has been called already. What importlib does last, whether the module could be loaded or not, is to set
    ``_initializing`` to False (`importlib._bootstrap._load_unlocked`, in Python 3.10 to 3.14).
    """

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if value:
            return
        self.__class__ = importlib.machinery.ModuleSpec  # type: ignore[assignment]
        if self.name in sys.modules:
            for completion in _completions.get(self.name, ()):
                _complete(self.name, completion)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules by the other finders, and wraps their loaders to run the completions."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        # `find_spec` is also called only to test for a library, so it has no side effects.
        if fullname not in _completions:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """The module's own loader, followed by the completions."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # such as get_source, used by tools that do not import

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        # Introspection (inspect.getsource, tracebacks) expects the real loader from here on.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for completion in _completions.get(module.__name__, ()):
            _complete(module.__name__, completion)

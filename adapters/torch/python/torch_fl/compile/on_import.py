"""Registers the device with Dynamo at the moment Dynamo itself is imported.

Inductor asks the device module for its code generators, so those are lazy by nature. Dynamo has no
such hook: its tables are filled by whoever imports them.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence

_TABLES = {
    "torch._dynamo.device_interface": "torch_fl.compile.device_interface",
    "torch._dynamo.backends.registry": "torch_fl.compile.backend",
    "torch._inductor.compile_fx": "torch_fl.compile.over_cuda",
}
"""Modules of torch, each with the module of ours whose `register()` completes it."""


def install() -> None:
    """Register now what is loaded, and the rest when it will be. Imports nothing of torch."""
    for table in _TABLES:
        module = sys.modules.get(table)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _complete(table)
        else:
            sys.meta_path.insert(0, _Finder(table))


def _complete(table: str) -> None:
    importlib.import_module(_TABLES[table]).register()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, by the other finders, and has its loader call back once it is executed."""

    def __init__(self, table: str) -> None:
        self._table = table

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._table:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, followed by the registration."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        # Introspection (inspect.getsource, tracebacks) expects the real loader from here on.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _complete(module.__name__)

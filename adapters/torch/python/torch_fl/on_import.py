"""Completes modules of other libraries at the moment they are imported.

Inductor asks the device module for its code generators, so those are lazy by nature. Others have no
such hook: Dynamo's tables are filled by whoever imports them, and some libraries know devices by a
list of names. Importing them here instead would make every program pay for them.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Sequence
from typing import Any

_COMPLETIONS = {
    "torch._dynamo.device_interface": "torch_fl.compile.device_interface",
    "torch._dynamo.backends.registry": "torch_fl.compile.backend",
    "torch._inductor.compile_fx": "torch_fl.compile.over_cuda",
    "torch.distributed.distributed_c10d": "torch_fl.distributed.registration",
    "safetensors": "torch_fl.integrations.safetensors",
    "transformers.training_args": "torch_fl.integrations.transformers",
    "triton.runtime.jit": "torch_fl.launcher.jit",
    "triton.compiler.compiler": "torch_fl.launcher.compiled",
    "flag_gems.utils.libentry": "torch_fl.launcher.entry",
}
"""Modules of others, each with the module of ours whose `register()` completes it."""


def install() -> None:
    """Complete now what is loaded, and the rest when it will be. Imports nothing else."""
    pending = set()
    for name in _COMPLETIONS:
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _complete(name)
        else:
            pending.add(name)
    sys.meta_path.insert(0, _Finder(pending))


def _complete(name: str) -> None:
    try:
        importlib.import_module(_COMPLETIONS[name]).register()
    except Exception as error:
        # Another version than the ones known here: it must stay usable for other devices.
        warnings.warn(
            f"{name} was imported as it is, without flagos: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules by the other finders, and has their loaders call back once they are executed."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        # Many only ask whether a library is there, so that finding one must change nothing.
        if fullname not in self._names:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """The module's own loader, followed by the completion."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # such as get_source, for who looks without importing

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        # Introspection (inspect.getsource, tracebacks) expects the real loader from here on.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _complete(module.__name__)

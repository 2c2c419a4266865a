"""The names of torch_npu, as modules of triton-ascend and FlagGems see them.

A few of them run `import torch_npu` and use `torch.npu`. An installed torch_npu must not be imported, because it takes
the device type that flagos has (PrivateUse1), and the attribute `torch.npu` would tell other libraries that there is a
torch_npu. So these modules, and no others, import by a function of their own: `torch_npu` is an empty module for them,
and `torch` a view of torch that has `torch.flagos` under the name `npu` too.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

import torch

from flagos_ascend.triton_ascend.device import interface

MODULES = (
    "triton.runtime.libentry",  # imports torch_npu when it is imported, and calls torch.npu
    "triton.testing",  # do_bench asks torch.npu.is_available()
    "triton.backends.ascend.testing",
)
# FlagGems finds its functions of the device as `torch.npu`, and imports its operators for Ascend as `_ascend`.
PACKAGES = ("flag_gems", "_ascend")

# FlagGems looks for the device's functions in a folder that the wheel of 3.2.0 calls otherwise.
MOVED = {"triton.language.extra.cann": "triton.language.extra.ascend"}


class _TorchNpu(types.ModuleType):
    """The module `torch_npu` for the modules above, which has no names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions
            raise AttributeError(name)
        advice = (
            "unset TRITON_BENCH_METHOD, which measures by it"
            if name == "profiler"
            else "this version of triton-ascend needs more than flagos knows (`flagos ascend triton`)"
        )
        raise AttributeError(
            f"torch_npu.{name}: torch_npu is not used where flagos serves the device; {advice}"
        )


class _Torch(types.ModuleType):
    """torch, with the device's functions under the name `npu` too."""

    def __getattr__(self, name: str) -> Any:
        return interface() if name == "npu" else getattr(torch, name)


_TORCH_NPU = _TorchNpu("torch_npu")
_TORCH = _Torch("torch")


def _import(
    name: str,
    globals: Any = None,
    locals: Any = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """`__import__` of the modules above."""
    package, _, rest = name.partition(".")
    if level == 0 and package == "torch_npu":
        if rest:
            raise ModuleNotFoundError(
                f"{name} was asked for by a module of triton-ascend that flagos knows only to import torch_npu itself: "
                "install a version that flagos was tested with (`flagos ascend triton` names them)",
                name=name,
            )
        return _TORCH_NPU
    found = builtins.__import__(name, globals, locals, fromlist or (), level)
    return _TORCH if found is torch else found


class _Loader(importlib.abc.Loader):
    """The module's own loader, which runs it with the function above."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        self._loader.exec_module(module)


class _Same(importlib.abc.Loader):
    """Gives a loaded module another name."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)
        self._spec = self._module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules above by the other finders."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        moved = next((name for name in MOVED if f"{fullname}.".startswith(f"{name}.")), None)
        if moved is None and fullname not in MODULES and fullname.partition(".")[0] not in PACKAGES:
            return None
        other = "" if moved is None else MOVED[moved] + fullname[len(moved) :]
        if moved in sys.modules and sys.modules[moved] is sys.modules.get(MOVED[moved]):
            return _same(fullname, other)  # not a second copy of the same file
        # Another finder may ask all others too.
        if getattr(self._thread, "finding", None) == fullname:
            return None
        self._thread.finding = fullname
        try:
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None and moved is None:
                        spec.loader = _Loader(spec.loader)
                    return spec
        finally:
            self._thread.finding = None
        return _same(fullname, other) if other else None


def _same(name: str, other: str) -> importlib.machinery.ModuleSpec | None:
    """The spec by which `name` is the module `other`; None where there is no such module either."""
    if importlib.util.find_spec(other) is None:
        return None
    return importlib.machinery.ModuleSpec(name, _Same(other), is_package=name in MOVED)


def install() -> None:
    """From now on the modules above see these names; those that are loaded are loaded again. Idempotent."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in MODULES:
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            importlib.reload(module)

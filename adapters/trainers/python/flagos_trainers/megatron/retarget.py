"""Megatron-LM-FL's modules, and those of TransformerEngine, read as if they said `flagos` where they say `cuda`.

Megatron's platform is asked in many places, and in others `torch.cuda` is; TransformerEngine has no platform. The
syntax trees of `megatron.*` and `transformer_engine.*` are changed as these modules are imported. Nothing on disk
changes, lines keep their numbers, and torch stays as it is, so that a CUDA device of torch beside flagos keeps its
name:

- ``torch.cuda.X`` becomes ``torch.flagos.X``, or `flagos_trainers.megatron.names.X` for what is called otherwise there
- ``"cuda"`` and ``"cuda:0"`` become ``"flagos"`` and ``"flagos:0"``, ``"nccl"`` becomes ``"flagos"``
- ``"torch.cuda.FloatTensor"`` becomes ``"torch.flagos.FloatTensor"``
- ``x.cuda()`` becomes ``x.flagos()``, and ``x.is_cuda`` becomes ``x.is_flagos``

Each place is counted, and `places` has a table of them for each release: a place that is not in it was never looked at.
Docstrings stay. What Triton or `torch.jit.script` reads again from the file has no such place.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import logging
import re
import sys
import types
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from flagos import UnsupportedError, _core
from flagos_trainers import releases
from flagos_trainers.megatron import names, places

MEGATRON, TRANSFORMER_ENGINE = releases.RETARGETED
# What is about CUDA itself, or about another framework.
_OTHERS_OWN = (
    "megatron.plugin.platform.platform_",
    "transformer_engine.jax.",
    "transformer_engine.plugin.core.backends.vendor.",
)
_INJECTED = "_flagos_names"
_TENSOR_TYPE = re.compile(r"torch\.cuda\.[A-Z]\w*Tensor")
_TORCH_CUDA = "torch.cuda"

logger = logging.getLogger("flagos")


class Retarget(ast.NodeTransformer):
    """Changes one module's tree, and counts what it changed by its kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Leaves docstrings, and texts that stand alone."""
        return node if isinstance(node.value, ast.Constant) else self._inside(node)

    def visit_Import(self, node: ast.Import) -> Any:
        """``import torch.cuda.nvtx as nvtx``."""
        changed: list[ast.stmt] = []
        for alias in node.names:
            if not (alias.name + ".").startswith(_TORCH_CUDA + "."):
                changed.append(ast.Import([alias]))
                continue
            self.counts[f"import {alias.name}"] += 1
            if alias.asname is None:
                changed.append(ast.Import([ast.alias("torch")]))
            else:
                changed.append(_import_of(alias.name, alias.asname))
        return self._in_place_of(node, changed)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """``from torch.cuda import device``, ``from torch.cuda.nvtx import range_push``."""
        if node.level or not ((node.module or "") + ".").startswith(_TORCH_CUDA + "."):
            return node
        self.counts.update(f"import {node.module}.{alias.name}" for alias in node.names)
        module = "flagos_trainers.megatron.names"
        if node.module == f"{_TORCH_CUDA}.nvtx":
            module = "torch_fl.cuda_names.nvtx"
        return self._in_place_of(node, [ast.ImportFrom(module, node.names, 0)])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``torch.cuda.X``, ``torch.cuda`` and ``x.is_cuda``."""
        if _is_torch_cuda(node.value):
            self.counts[f"{_TORCH_CUDA}.{node.attr}"] += 1
            if node.attr in names.SPECIAL:
                node.value = ast.copy_location(ast.Name(_INJECTED, ast.Load()), node.value)
            else:
                node.value.attr = "flagos"  # type: ignore[attr-defined]
            return node
        if _is_torch_cuda(node):
            self.counts[_TORCH_CUDA] += 1
            node.attr = "flagos"
            return node
        self.generic_visit(node)
        if node.attr == "is_cuda":
            self.counts["is_cuda"] += 1
            node.attr = "is_flagos"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``x.cuda(...)``."""
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr == "cuda"
            and not _is_torch_cuda(function)
        ):
            self.counts[".cuda()"] += 1
            function.attr = "flagos"
        return self._inside(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Device strings, and the name of a backend."""
        text = node.value
        if isinstance(text, str):
            if text == "cuda" or text.startswith("cuda:"):
                self.counts["device"] += 1
                node.value = "flagos" + text[len("cuda") :]
            elif _TENSOR_TYPE.fullmatch(text):  # what `x.type()` is compared with
                self.counts["type"] += 1
                node.value = text.replace("cuda", "flagos")
            elif text == "nccl":
                self.counts["nccl"] += 1
                node.value = "flagos"
        return node

    def _inside(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        return node

    def _in_place_of(self, node: ast.stmt, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [ast.copy_location(statement, node) for statement in statements]


def _is_torch_cuda(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "cuda"
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
    )


def _import_of(name: str, asname: str) -> ast.stmt:
    """``import torch.cuda.nvtx as x`` by what stands for it here."""
    inner = name.removeprefix(_TORCH_CUDA).lstrip(".") or "names"
    package = "torch_fl.cuda_names" if inner == "nvtx" else "flagos_trainers.megatron"
    return ast.ImportFrom(package, [ast.alias(inner, asname)], 0)


def retargeted(source: bytes | str, path: str) -> tuple[ast.Module, Counter[str]]:
    """A module's changed tree, and how many places of each kind were changed."""
    changes = Retarget()
    tree = ast.fix_missing_locations(changes.visit(ast.parse(source, path)))
    return tree, changes.counts


def scan(package: Path) -> dict[str, dict[str, int]]:
    """The places below the folder of a package: modules, and the number of places of each kind."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if is_retargeted(module):
            _, counts = retargeted(path.read_bytes(), str(path))
            if counts:
                found[module] = dict(sorted(counts.items()))
    return found


def is_retargeted(module: str) -> bool:
    """Whether a module is changed at its import."""
    named = module + "."
    return module.partition(".")[0] in releases.RETARGETED and not named.startswith(_OTHERS_OWN)


def version(package: str | Path) -> str | None:
    """The version of the package in a folder, read from its source; None where there is none."""
    folder = Path(package)
    if folder.name == TRANSFORMER_ENGINE:
        return _version_of_transformer_engine(folder)
    try:
        tree = ast.parse((folder / "core" / "package_info.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    numbers = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    parts = [numbers.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
    return None if None in parts else ".".join(map(str, parts))


def _version_of_transformer_engine(folder: Path) -> str | None:
    """Its sources have the number beside the package alone, and an installed one has it in its metadata."""
    beside = folder.parent / "build_tools" / "VERSION.txt"
    if beside.exists():
        return beside.read_text(encoding="utf-8").strip()
    for found in metadata.distributions(name=TRANSFORMER_ENGINE, path=[str(folder.parent)]):
        return found.version
    return None


def package(name: str) -> Path | None:
    """The folder that this interpreter would import a package from; None without one that has a version."""
    spec = importlib.machinery.PathFinder.find_spec(name)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if version(folder) is not None:
            return Path(folder)
    return None


@cache
def _known(root: str) -> dict[str, dict[str, int]] | None:
    number = version(root)
    return None if number is None else places.of(Path(root).name, number)


def _judge(module: str, root: str, counts: Counter[str]) -> None:
    """Reports places that no table has: under FLAGOS_STRICT by an error."""
    known = _known(root)
    if known is None:
        return  # `activation.problem` refuses this release
    expected = known.get(module, {})
    if dict(counts) == expected:
        return
    message = (
        f"{module} has other places that say cuda than the release that flagos-trainers knows: "
        f"{_words(counts)} instead of {_words(expected)}; `flagos trainers check` lists them"
    )
    if _core.environment_flag("FLAGOS_STRICT"):
        raise UnsupportedError(message)
    logger.warning(message)


def _words(counts: Any) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())) or "none"


class _Loader(importlib.abc.Loader):
    """Executes a module's changed tree. It reads no bytecode, which is of the source as it stands."""

    def __init__(self, loader: importlib.machinery.SourceFileLoader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        path = self._loader.path
        tree, counts = retargeted(self._loader.get_data(path), path)
        depth = module.__name__.count(".") + (self._loader.is_package(module.__name__))
        _judge(module.__name__, str(Path(path).parents[depth - 1]), counts)
        module.__dict__[_INJECTED] = names
        exec(compile(tree, path, "exec", dont_inherit=True), module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the packages' modules, and has them changed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not is_retargeted(fullname):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader)
        return spec


def unchanged() -> list[str]:
    """The loaded modules with places that were not changed."""
    found = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path is None or not is_retargeted(name) or _INJECTED in vars(module):
            continue
        if retargeted(Path(path).read_bytes(), path)[1]:
            found.append(name)
    return sorted(found)


def install() -> None:
    """Changes modules from now on. Idempotent."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())

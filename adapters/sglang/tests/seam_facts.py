"""Facts about SGLang that the adapter relies on, and that `seam/` has too, read from SGLang's sources."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from sglang_flagos import hooks, releases

# Modules of `sglang.srt` beside `models` and `layers` in which a global keeps the answer of `is_cuda()`, of which the
# adapter knows what each decides. A new one is to be read. The releases stand behind a name that not all of them have.
_KNOWN = Path(__file__).with_name("is_cuda_modules.txt")


def facts(root: Path, release: releases.Release, *, double: bool = False) -> list[str]:
    """What is not as the adapter takes it for, in a folder with the package ``sglang`` of a release."""
    found = [
        *hook_facts(root, release),
        *order_facts(root),
        *unpickler_facts(root, release),
        *view_facts(root, release),
    ]
    return found if double else [*found, *is_cuda_facts(root, release)]


def hook_facts(root: Path, release: releases.Release) -> list[str]:
    """Targets of hooks, and the parameters of those that name them."""
    wrong = []
    for target, hook in hooks.of(release).items():
        function = _function(root, target)
        if function is None:
            wrong.append(f"{target} is not there")
            continue
        theirs = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        parameters = list(inspect.signature(hook).parameters.values())[1:]
        ours = [
            p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)
        ]
        takes_any = any(p.kind == p.VAR_POSITIONAL for p in parameters)
        if (theirs[: len(ours)] if takes_any else theirs) != ours:
            wrong.append(f"{target} has the parameters {theirs}, and the hook {ours}")
    return wrong


def order_facts(root: Path) -> list[str]:
    """``sglang.srt.utils.common`` asks for the platform between its imports and its first function."""
    tree = ast.parse((root / "sglang/srt/utils/common.py").read_text())
    place: dict[str, int] = {}
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                place.setdefault(alias.asname or alias.name, number)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            place.setdefault(node.name, number)
        elif isinstance(node, ast.Assign):
            for name in node.targets:
                place.setdefault(ast.unparse(name), number)
    order = ["torch", "Library", "current_platform", "is_cuda", "sglang_lib"]
    missing = [name for name in order if name not in place]
    if missing:
        return [f"sglang.srt.utils.common has no {', '.join(missing)}"]
    if sorted(order, key=place.__getitem__) != order:
        return [f"sglang.srt.utils.common does not have {', '.join(order)} in this order"]
    return []


def unpickler_facts(root: Path, release: releases.Release) -> list[str]:
    """What unpickles weights has the set to which the adapter adds."""
    name = "ALLOWED_MODULE_PREFIXES" if release.unpickles_by_prefix else "ALLOWED_GLOBALS"
    tree = ast.parse((root / "sglang/srt/utils/common.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "SafeUnpickler":
            body = [ast.unparse(one).partition("=")[0] for one in node.body]
            if any(one.partition(":")[0].strip() == name for one in body):
                return []
    return [f"sglang.srt.utils.common.SafeUnpickler has no {name}"]


def view_facts(root: Path, release: releases.Release) -> list[str]:
    """Modules that get a view of torch import it by this name, and those that take flagos for CUDA ask for that."""
    return [
        f"sglang.srt.{name} has no `import torch`"
        for name in (*release.views, *release.views_with_devices)
        if "\nimport torch\n" not in "\n" + _file(root, f"sglang.srt.{name}").read_text()
    ] + [
        f"{name} keeps no is_cuda()"
        for name in release.as_cuda
        if "\n_is_cuda = is_cuda()\n" not in _file(root, name).read_text()
    ]


def is_cuda_facts(root: Path, release: releases.Release) -> list[str]:
    """Modules that keep the answer of `is_cuda()`: the adapter's list has them all, and no others."""
    folder = root / "sglang/srt"
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if "_is_cuda = is_cuda()" in path.read_text()
        and path.relative_to(folder).parts[0] not in ("models", "layers", "hardware_backend")
    }
    listed = (line.split() for line in _KNOWN.read_text().splitlines())
    known = {name for name, *numbers in listed if not numbers or release.number in numbers}
    return [f"{one} keeps is_cuda(), and is not known" for one in sorted(found - known)] + [
        f"{one} keeps no is_cuda() any more" for one in sorted(known - found)
    ]


def _file(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _function(root: Path, target: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition of a function or a method, by its path."""
    module, _, name = target.rpartition(".")
    holder = ""
    if not _file(root, module).exists():
        module, _, holder = module.rpartition(".")
    if not _file(root, module).exists():
        return None
    tree = ast.parse(_file(root, module).read_text())
    body: list[ast.stmt] = tree.body
    others = [
        ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    ]
    name = others[-1] if others else name  # another name of a function, without CUDA
    if holder:
        classes = (n for n in body if isinstance(n, ast.ClassDef) and n.name == holder)
        body = next((c.body for c in classes), [])
    functions = (n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((f for f in functions if f.name == name), None)

"""Facts about vLLM that the adapter relies on, and that `seam/` has too, read from vLLM's sources."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from vllm_flagos import releases, torch_view

# File of vLLM → names that its top level has.
TOP_LEVEL = {
    "platforms/__init__.py": (
        "builtin_platform_plugins",
        "resolve_current_platform_cls_qualname",
        "_current_platform",
        "__getattr__",
    ),
    "utils/torch_utils.py": (
        "prev_set_stream",
        "_patched_set_stream",
        "_current_stream_tls",
        "get_accelerator_view_from_cpu_tensor",
    ),
    "v1/attention/backends/registry.py": ("AttentionBackendEnum", "register_backend"),
    "v1/attention/backends/triton_attn.py": (
        "unified_attention",
        "triton_reshape_and_cache_flash",
        "context_attention_fwd",
        "TritonAttentionBackend",
    ),
    "v1/executor/multiproc_executor.py": ("MultiprocExecutor",),
    "v1/worker/gpu_worker.py": ("kernel_warmup", "Worker", "init_worker_distributed_environment"),
}
GROUPS = {
    "PLATFORM_PLUGINS_GROUP": "vllm.platform_plugins",
    "DEFAULT_PLUGINS_GROUP": "vllm.general_plugins",
}


def differences(folder: Path, release: releases.Release) -> list[str]:
    """What does not hold in the vLLM of this folder."""
    root, found = folder / "vllm", []
    kernels = {
        _file(module): tuple(path.partition(".")[0] for path in paths)
        for module, paths in release.kernels.items()
    }
    for file, names in (TOP_LEVEL | kernels).items():
        missing = set(names) - _top_level(root / file).keys()
        found += [f"{file} has no {name}" for name in sorted(missing)]
    constants = _top_level(root / "plugins" / "__init__.py")
    for name, value in GROUPS.items():
        node = constants.get(name)
        if not (isinstance(node, ast.Assign) and ast.literal_eval(node.value) == value):
            found.append(f"plugins has no {name} = {value!r}")
    resolve = _top_level(root / "platforms" / "__init__.py").get(
        "resolve_current_platform_cls_qualname"
    )
    if resolve is None or not any(_swallows(node) for node in ast.walk(resolve)):
        found.append("platforms swallows no errors of plugins any more")
    for name in torch_view.MODULES:
        source = (root / _file(name)).read_text()
        if "torch.cuda" not in source:
            found.append(f"{name} does not say torch.cuda")
    known = _methods(root / "platforms" / "interface.py", "Platform")
    known |= _methods(root / "platforms" / "cuda.py", "CudaPlatformBase")
    ours = Path(torch_view.__file__).with_name("platform.py")
    later = {"check_runner_kv_caches_multi_layer"} if release.minor == "0.26" else set()
    unknown = _methods(ours, "FlagosPlatform") - known - _asked(root) - later
    found += [f"vLLM never asks a platform for {name}" for name in sorted(unknown)]
    return found


def _file(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def _top_level(file: Path) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for node in ast.parse(file.read_text()).body:
        for below in (node, *(ast.walk(node) if isinstance(node, ast.If) else ())):
            found |= dict.fromkeys(_names(below), below)
    return found


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return []


def _swallows(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.ExceptHandler)
        and isinstance(node.type, ast.Name)
        and node.type.id == "Exception"
        and not any(isinstance(below, ast.Raise) for below in ast.walk(node))
    )


def _methods(file: Path, name: str) -> set[str]:
    (found,) = (
        node
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {below.name for below in found.body if isinstance(below, ast.FunctionDef)}


def _asked(root: Path) -> set[str]:
    """Attributes that vLLM reads of ``current_platform``."""
    found: set[str] = set()
    for file in root.rglob("*.py"):
        source = file.read_text()
        if "current_platform." in source:
            nodes: Any = ast.walk(ast.parse(source))
            found |= {
                node.attr
                for node in nodes
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "current_platform"
            }
    return found

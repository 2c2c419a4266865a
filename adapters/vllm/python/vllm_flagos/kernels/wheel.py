"""The kernels in vLLM's own wheel: stable-ABI libraries that register operators with torch, for CUDA."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from flagos import _core

# Namespace of torch.ops → the module of vLLM that registers it.
LIBRARIES = {
    "_C": "_C_stable_libtorch",
    "_C_cache_ops": "_C_stable_libtorch",
    "_C_custom_ar": "_C_stable_libtorch",
    "_moe_C": "_moe_C_stable_libtorch",
}


@cache
def missing(namespace: str) -> str | None:
    """Why the wheel's kernels of a namespace cannot serve in this process; None when they can. Loads nothing."""
    info = _core.vendor_info()
    if info["torch_device_type"] != "cuda":
        return f"vLLM's own kernels are for CUDA, and vendor {info['name']} serves flagos here"
    vllm = find_spec("vllm")
    if vllm is None or not vllm.submodule_search_locations:
        return "vLLM is not installed (no module vllm)"
    library = LIBRARIES[namespace]
    if not list(Path(next(iter(vllm.submodule_search_locations))).glob(f"{library}*.so")):
        return f"this vLLM was built without kernels (no vllm/{library}*.so)"
    return None


def load() -> None:
    """Registers the kernels that are there with torch. Raises ImportError for a library that does not load."""
    for namespace, library in LIBRARIES.items():
        if missing(namespace) is None:
            import_module(f"vllm.{library}")

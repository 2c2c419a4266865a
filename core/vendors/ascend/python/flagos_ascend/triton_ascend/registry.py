"""flagos in the registry of frameworks that triton-ascend has from 3.2.1 on (`backend_register.py`).

The registry holds one function for each category and method. Some methods answer in Python, others give C++ for the
launchers of kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from flagos_ascend.triton_ascend import device, source

CATEGORY = "flagos"


def _version_hash() -> list[str]:
    # A part of the key under which compiled headers are kept.
    return [CATEGORY, hashlib.sha256(source.HEADERS.encode()).hexdigest()]


def _numpy_types() -> dict[torch.dtype, Any]:
    import numpy

    names = (
        *("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64"),
        *("complex64", "complex128"),
    )
    found: dict[torch.dtype, Any] = {getattr(torch, name): getattr(numpy, name) for name in names}
    return found | {torch.bool: numpy.bool_}


def _empty(size: int) -> torch.Tensor:
    """Memory of `size` 32-bit integers, which a benchmark overwrites to empty caches."""
    return torch.empty(size, dtype=torch.int32, device=device.TYPE)


def _shapes(*args: Any) -> list[list[int]]:
    return [list(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]


def _allocate_memory(size: str, stream: str) -> str:
    # In the body of a function without a result.
    failed = "if (workspace_addr_ptr == nullptr)\n      return;"
    return f"{source.memory('workspace', size, 'workspace_addr_ptr')}\n    {failed}"


def _allocate_sync_block_lock(size: str, stream: str) -> str:
    # What follows in the launcher ends the launch if there is no memory.
    return source.memory("locks", size, "syncBlockLock_ptr")


METHODS: Mapping[str, Callable[..., Any]] = {
    "version_hash": _version_hash,
    "cxx_abi": lambda: 1,
    "type_convert": _numpy_types,
    "get_device_interface": device.interface,
    "get_empty_tensor": _empty,
    "get_tensor_params_shape": _shapes,
    # Headers and libraries of torch: none.
    "get_cc_cmd": lambda build_pch: [],
    "get_current_device": device.current,
    "set_current_device": device.set_current,
    "get_current_stream": device.stream,
    "header_file": lambda enable_taskqueue: source.HEADERS,
    "allocate_memory": _allocate_memory,
    "allocate_sync_block_lock": _allocate_sync_block_lock,
    "pre_launch": lambda first_call: "",
    "async_launch": source.launch,
}
"""Each method that the registry asks a framework for."""


def register(registry: Any) -> None:
    """Registers flagos in `backend_strategy_registry`. Idempotent.

    Raises RuntimeError if another framework has methods that flagos does not: then this version of triton-ascend asks
    for more than was known here, and a launch would fail later and less clearly.
    """
    # The module has a proxy that makes the registry when it is first needed.
    whole = getattr(registry, "_get_instance", lambda: registry)()
    known = whole.list_categories()
    if CATEGORY in known:
        return
    wanted = {method for category in known for method in whole.list_methods(category)}
    if missing := sorted(wanted - METHODS.keys()):
        raise RuntimeError(
            f"this version of triton-ascend asks a framework for {', '.join(missing)}, which flagos does not know: "
            "install a version that flagos was tested with (`flagos ascend triton` names them)"
        )
    for name, function in METHODS.items():
        registry.register(CATEGORY, name)(function)

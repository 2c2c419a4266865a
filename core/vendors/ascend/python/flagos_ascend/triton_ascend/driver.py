"""flagos' driver of triton-ascend: a subclass of the installed one."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from flagos_ascend.triton_ascend import device, launcher_3_2_0, registry, source

_BACKEND = "triton.backends.ascend"
# Bytes that a benchmark overwrites to empty the chip's caches, as in triton-ascend's own driver.
_CACHES = 192 << 20


def is_installed() -> bool:
    """Whether the Triton that is being imported has the back end for Ascend."""
    return importlib.util.find_spec(_BACKEND) is not None


def has_registry() -> bool:
    """Whether it has the registry of frameworks (3.2.1 and later)."""
    return importlib.util.find_spec(f"{_BACKEND}.backend_register") is not None


def create() -> Any:
    """The driver, which compiles its helper module and needs CANN.

    Raises RuntimeError for a version that flagos does not know, without CANN, and without a C++ compiler.
    """
    return _subclass(prepare().NPUDriver)()


def prepare() -> Any:
    """The module of the installed driver, of which nothing asks torch_npu any more. Idempotent.

    Raises RuntimeError for a version that flagos does not know.
    """
    module = importlib.import_module(f"{_BACKEND}.driver")
    if has_registry():
        registry.register(
            importlib.import_module(f"{_BACKEND}.backend_register").backend_strategy_registry
        )
        vars(importlib.import_module(f"{_BACKEND}.utils"))["backend_policy"] = registry.CATEGORY
    else:
        launcher_3_2_0.install(module)
    _keep_apart(module)
    return module


def _keep_apart(module: ModuleType) -> None:
    """Has the module keep what it compiles under other keys than with torch_npu.

    Otherwise it would find the helper module of an earlier run, which is linked to torch_npu's library.
    """
    original: Callable[..., Any] = module.get_cache_manager
    if getattr(original, "flagos", False):
        return

    @functools.wraps(original)
    def get_cache_manager(key: str, *args: Any, **kwargs: Any) -> Any:
        text = f"flagos {source_version()} {key}"
        return original(hashlib.sha256(text.encode()).hexdigest(), *args, **kwargs)

    get_cache_manager.flagos = True  # type: ignore[attr-defined]
    vars(module)["get_cache_manager"] = get_cache_manager


@functools.cache
def source_version() -> str:
    """Changes with flagos' C++ and with Python, whose modules fit no other version."""
    text = source.HEADERS + sys.version
    return hashlib.sha256(text.encode()).hexdigest()


def _subclass(base: type) -> type:
    class FlagosDriver(base):
        """triton-ascend's driver on the devices and streams of flagos."""

        def get_current_device(self) -> int:
            return device.current()

        def set_current_device(self, index: int) -> None:
            device.set_current(index)

        def get_current_stream(self, index: int | None = None) -> int:
            return device.stream(index)

        def get_device_interface(self) -> ModuleType:
            return device.interface()

        def get_active_torch_device(self) -> torch.device:
            return torch.device(device.TYPE, self.get_current_device())

        def get_empty_cache_for_benchmark(self) -> torch.Tensor:
            return torch.empty(_CACHES // 4, dtype=torch.int32, device=device.TYPE)

    return FlagosDriver

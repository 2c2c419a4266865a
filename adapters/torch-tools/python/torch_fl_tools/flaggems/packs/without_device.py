"""FlagGems' functions on a machine without a GPU, as they would run on a chip, up to the launches.

Triton compiles for the chip, and launches nothing. FlagGems asks torch about the device, and is told what the chip is.
Tensors lie in the machine's own memory and show the device `cuda`, so that what a function puts on the host, and could
not be repeated, is told from what it puts on the device.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._device import _device_constructors

_SHOWN = torch.device("cuda", 0)
_BENEATH = torch.device("cpu")


@dataclass(frozen=True)
class Chip:
    """A chip: its product name, compute capability (90 is 9.0), multiprocessors, and sizes in bytes."""

    name: str
    arch: int
    processors: int
    memory: int
    l2_cache: int = 50 << 20
    shared_bytes: int = 232_448  # of one block
    registers: int = 65_536


CHIPS = (
    Chip("NVIDIA H200", 90, 132, 150_754_820_096),
    Chip("NVIDIA H100 80GB HBM3", 90, 132, 85_029_158_912),
)
"""The chips whose numbers are known here. The first one of an architecture is meant by its name, `sm_90`."""


def chip(name: str) -> Chip:
    """A chip by its name or its architecture. Raises ValueError for one whose numbers are not known."""
    for one in CHIPS:
        if name in (one.name, f"sm_{one.arch}"):
            return one
    known = ", ".join(f"{one.name!r} (sm_{one.arch})" for one in CHIPS)
    raise ValueError(
        f"{name!r} is no chip that is known here: {known}; on a machine with the chip, `flagos pack` needs no name"
    )


def _driver(target: Chip) -> Any:
    """Triton's driver, for a chip that is not there."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher

    handles = itertools.count(1)

    class NoLauncher:
        """In the place of the launcher that Triton has compiled for each kernel."""

        stands_for = CudaLauncher

        def __init__(self, src: Any, metadata: Any) -> None:
            pass

        def __call__(self, *arguments: Any) -> None:
            pass

    class Driver(CudaDriver):  # type: ignore[misc, unused-ignore]
        """Knows the chip, and has neither a library nor a device."""

        def __init__(self) -> None:
            self.launcher_cls = NoLauncher
            self.get_current_device = lambda: 0
            self.set_current_device = lambda device: None
            self.get_current_stream = lambda device: 0
            self.get_device_capability = lambda device=0: divmod(target.arch, 10)
            self.utils = SimpleNamespace(
                load_binary=self._load,
                get_device_properties=lambda device: {
                    "max_shared_mem": target.shared_bytes,
                    "max_num_regs": target.registers,
                    "multiprocessor_count": target.processors,
                    "warpSize": 32,
                },
            )

        @staticmethod
        def _load(
            name: str, image: bytes, shared: int, device: int
        ) -> tuple[int, int, int, int, int]:
            handle = next(handles)
            return handle, handle, 0, 0, 1024

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", target.arch, 32)

    return Driver()


@contextmanager
def chip_without_device(target: Chip) -> Iterator[None]:
    """Triton and FlagGems meanwhile see this chip. To be entered before FlagGems is imported."""
    from triton.runtime import driver

    major, minor = divmod(target.arch, 10)
    properties = SimpleNamespace(
        name=target.name,
        major=major,
        minor=minor,
        multi_processor_count=target.processors,
        total_memory=target.memory,
        L2_cache_size=target.l2_cache,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=target.registers,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=target.shared_bytes,
        shared_memory_per_multiprocessor=target.shared_bytes + 1024,
    )
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": target.name,
        "get_device_capability": (major, minor),
        "get_device_properties": properties,
        "synchronize": None,
    }
    settings = {"GEMS_VENDOR": "nvidia", "FLAGGEMS_DB_URL": "sqlite:///:memory:"}
    before = driver._active
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, settings))
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, _answering(answer)))
        stack.enter_context(mock.patch.object(torch.cuda, "device", _answering(nullcontext())))
        driver.set_active(_driver(target))
        try:
            yield
        finally:
            driver._active = before


def _answering(answer: Any) -> Any:
    return lambda *_, **__: answer


@functools.cache
def _makes_tensors() -> frozenset[Any]:
    return frozenset(_device_constructors())


class ShownAsCuda(TorchFunctionMode):
    """Tensors of the host show the device `cuda`, and what is made on that device is made on the host.

    `on_host` says what was made on the host on purpose, which a replay could not repeat; None if nothing was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_host: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == _DEVICE:
            found = func(*args)
            return _SHOWN if found == _BENEATH else found
        if func == _IS_CUDA:
            return args[0].device == _BENEATH  # here the tensor shows where it is
        if func is torch.Tensor.get_device:
            return 0
        if func in _makes_tensors() and kwargs.get("device") is None:
            self.on_host = f"{func.__name__} without a device"
        elif func is torch.Tensor.cpu:
            self.on_host = "Tensor.cpu"
        given = [each for each in pytree.tree_leaves((args, kwargs)) if _names_a_device(each)]
        if any(torch.device(each).type == "cpu" for each in given):
            self.on_host = f"{getattr(func, '__name__', func)} with the device cpu"
        if given:
            args, kwargs = pytree.tree_map(_beneath, (args, kwargs))
        return func(*args, **kwargs)


_DEVICE = torch.Tensor.device.__get__  # type: ignore[attr-defined, unused-ignore]
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined, unused-ignore]


def _names_a_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (
        isinstance(value, str) and value.partition(":")[0] in ("cuda", "cpu")
    )


def shown(arguments: Any) -> Any:
    """Arguments of a function, with the device that the chip would be instead of the host."""
    return pytree.tree_map(
        lambda value: _SHOWN if isinstance(value, torch.device) and value == _BENEATH else value,
        arguments,
    )


def _beneath(value: Any) -> Any:
    return _BENEATH if _names_a_device(value) else value

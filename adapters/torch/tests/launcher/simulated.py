"""Triton on a machine without a device: the core's simulated CUDA driver, as the one that Triton finds."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.compiled import CXX, MACHINE, compiled, including

ROOT = Path(__file__).resolve().parents[4]
SOURCES = [
    ROOT / "core/vendors/cuda/tests/conformance/simulated/libcuda.cc",
    Path(__file__).with_name("triton.cc"),
]
COMPILE = "-std=c++17 -O0 -fPIC -shared -pthread -Wl,-soname,libcuda.so.1"


def unavailable() -> str | None:
    """Why the simulated driver cannot be used here."""
    if shutil.which(CXX[0]) is None:
        return f"there is no {CXX[0]} to compile the simulated driver with"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return "a CUDA driver is here: tests/bench/gpu/launch.py looks at launches on a device"


class Library:
    """The simulated driver, loaded before anybody asks the dynamic linker for one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        within = [*(part.parent for part in SOURCES), MACHINE]
        command = [*CXX, *COMPILE.split()]
        made = compiled("libcuda.so.1", command, text=including(*SOURCES), within=within)
        # Triton looks for it in this folder.
        path = folder / made.name
        path.symlink_to(made)
        self.cuda = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.cuda.simulated_launch.restype = ctypes.c_char_p
        self.check(self.cuda.cuInit(0))
        context = ctypes.c_void_p()
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(self.cuda.cuCtxSetCurrent(context))
        self.memory = self.allocate(1 << 20)

    @staticmethod
    def check(code: int) -> None:
        assert code == 0, f"the simulated driver returned {code}"

    def allocate(self, nbytes: int) -> int:
        """The address of device memory, which is the machine's own."""
        address = ctypes.c_uint64()
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)))
        return address.value

    def stream(self) -> int:
        """A stream."""
        handle = ctypes.c_uint64()
        self.check(self.cuda.cuStreamCreateWithPriority(ctypes.byref(handle), 1, 0))
        return handle.value

    @contextmanager
    def launches(self) -> Iterator[list[str]]:
        """The driver's arguments of every launch in the block, as text."""
        found: list[str] = []
        self.cuda.simulated_record(True)
        try:
            yield found
        finally:
            count = self.cuda.simulated_launches()
            found += [self.cuda.simulated_launch(index).decode() for index in range(count)]
            self.cuda.simulated_record(False)


@functools.cache
def library() -> Library:
    """The driver, once for the process, with what is compiled for it in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="simulated-cuda-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
    # Triton has a launcher compiled for every signature: nothing is gained by optimising them.
    compiler = folder / "cc"
    compiler.write_text('#!/bin/sh\nexec gcc "$@" -O0\n')
    compiler.chmod(0o755)
    os.environ["CC"] = str(compiler)
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return Library(folder)


@functools.cache
def driver_class() -> type:
    """Triton's driver for CUDA, with one device of compute capability 9.0."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    class SimulatedDriver(CudaDriver):
        """CUDA without torch's: the device is 0, and the stream the one that was chosen."""

        def __init__(self) -> None:
            super().__init__()
            self.stream = 0
            self.get_current_device = lambda: 0
            self.set_current_device = lambda device: None
            self.get_current_stream = lambda device: self.stream
            self.get_device_capability = lambda device=0: (9, 0)

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

    return SimulatedDriver


@functools.cache
def active() -> Any:
    """Triton's active driver, which is the simulated one from now on."""
    library()
    from triton.runtime import driver

    made = driver_class()()
    driver.set_active(made)
    return made


def tensor(count: int, dtype: Any, offset: int = 0) -> Any:
    """A tensor in the simulated device's memory, `offset` bytes behind a multiple of 16."""
    import torch

    nbytes = count * dtype.itemsize
    block = (ctypes.c_byte * nbytes).from_address(library().allocate(nbytes + 512) + offset)
    return torch.frombuffer(block, dtype=dtype)


@contextmanager
def flaggems() -> Iterator[Any]:
    """FlagGems, which asks torch about a CUDA device when it is imported and at every launch."""
    import collections
    from contextlib import ExitStack
    from unittest import mock

    import torch

    active()
    properties = collections.namedtuple("properties", "name multi_processor_count major minor")
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": "Simulated",
        "get_device_capability": (9, 0),
        "get_device_properties": properties("Simulated", 132, 9, 0),
        "device": nullcontext(),
    }
    settings = {
        "GEMS_VENDOR": "nvidia",
        "FLAGGEMS_DB_URL": "sqlite:///:memory:",
        "FLAGGEMS_CACHE_DIR": str(library().folder),
    }
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, settings))
        for name, answer in answers.items():
            patch = mock.patch.object(torch.cuda, name, lambda *_, answer=answer: answer)
            stack.enter_context(patch)
        import flag_gems

        yield flag_gems


@contextmanager
def any_memory() -> Iterator[None]:
    """Let kernels reach ordinary memory, as they do on some machines."""
    library().cuda.simulated_reach(True)
    try:
        yield
    finally:
        library().cuda.simulated_reach(False)

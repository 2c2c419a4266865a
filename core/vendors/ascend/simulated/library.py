"""The simulated ACL runtime: built once, and called from a process of its own.

A test names a program, a function of `misuses` or `uses`. `run` starts it in a new process with the environment
that the program asks for, and returns what the library has recorded.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.compiled import CXX, MACHINE, compiled

SOURCES = Path(__file__).parent
LIBRARY = "SIMULATED_ASCEND_LIBRARY"

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

H2H, H2D, D2H, D2D, DEFAULT = range(5)
SYNC, TIME_LINE, EXTERNAL, IPC = 0x1, 0x8, 0x20, 0x40
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
CONTINUE, STOP = range(2)


@cache
def library() -> Path:
    """The library, which the environment may name."""
    if LIBRARY in os.environ:
        return Path(os.environ[LIBRARY])
    flags = "-std=c++17 -O1 -fPIC -Wall -Wextra -Werror -fvisibility=hidden -shared -pthread"
    command = [*CXX, *flags.split()]
    return compiled("libascendcl.so", command, [SOURCES / "libascendcl.cc"], within=[MACHINE])


def _argument(value: Any) -> Any:
    # Numbers travel in whole registers, as those of C's narrower types may.
    if isinstance(value, int):
        return ctypes.c_uint64(value & (1 << 64) - 1)
    return value


class Acl:
    """The library's functions by name. Each call must succeed, except in `refused`."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(library()))
        self.library.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.library.aclrtGetSocName.restype = ctypes.c_char_p
        self.library.simulated_ascend_misuse.restype = ctypes.c_char_p
        for name in ("misuses", "live", "calls", "tasks", "address"):
            getattr(self.library, f"simulated_ascend_{name}").restype = ctypes.c_uint64
        self.kept: list[Any] = []

    def code(self, name: str, *arguments: Any) -> int:
        """The code that a call returns."""
        return int(getattr(self.library, name)(*map(_argument, arguments)))

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            code = self.code(name, *arguments)
            assert code == 0, f"{name} returned {code}: {self.error()}"

        return call

    def refused(self, code: int, name: str, *arguments: Any) -> None:
        """A call that must return this code, with an error text."""
        returned = self.code(name, *arguments)
        assert returned == code, f"{name} returned {returned} for {code}: {self.error()}"
        text = self.error()
        assert text and name in text, f"{name} left no error text but {text}"

    def error(self) -> str | None:
        """The thread's error text, fetched."""
        text = self.library.aclGetRecentErrMsg()
        return text.decode() if text else None

    def new(self, name: str, *arguments: Any) -> int:
        """What a call writes to its first argument, a pointer."""
        out = ctypes.c_void_p()
        self.__getattr__(name)(ctypes.byref(out), *arguments)
        return out.value or 0

    def new_last(self, name: str, *arguments: Any) -> int:
        """What a call writes to its last argument, a pointer."""
        out = ctypes.c_void_p()
        self.__getattr__(name)(*arguments, ctypes.byref(out))
        return out.value or 0

    def number(self, name: str, *arguments: Any) -> int:
        """What a call writes to its last argument, a 32-bit number."""
        out = ctypes.c_int32(-1)
        self.__getattr__(name)(*arguments, ctypes.byref(out))
        return out.value

    def start(self, device: int = 0) -> None:
        """Makes this device the thread's."""
        self.library.aclInit(None)
        self.aclrtSetDevice(device)

    def malloc(self, size: int = 256) -> int:
        """Memory of the device."""
        return self.new("aclrtMalloc", size, 0)

    def pinned(self, size: int = 256) -> int:
        """Memory of the host that the runtime has."""
        return self.new("aclrtMallocHost", size)

    def pageable(self, data: bytes) -> int:
        """Memory of the host that the runtime does not know."""
        buffer = ctypes.create_string_buffer(data, len(data))
        self.kept.append(buffer)
        return ctypes.addressof(buffer)

    def stream(self) -> int:
        """A stream as torch's adapter makes it."""
        return self.new("aclrtCreateStreamWithConfig", 0, 3)

    def event(self, flags: int = SYNC) -> int:
        """An event that needs none of the hardware."""
        return self.new("aclrtCreateEventExWithFlag", flags)

    def read(self, device: int, size: int) -> bytes:
        """Bytes of the device, copied now."""
        buffer = ctypes.create_string_buffer(size)
        self.aclrtMemcpy(buffer, size, device, size, D2H)
        return buffer.raw

    def function(self, action: Callable[[], Any]) -> Any:
        """A host function in C's form."""
        self.kept.append(FUNCTION(lambda _: action() and None))
        return self.kept[-1]

    def kernel(self, action: Callable[[], int]) -> Any:
        """A kernel in C's form."""
        self.kept.append(KERNEL(lambda _: action()))
        return self.kept[-1]

    @contextmanager
    def held(self, stream: int) -> Iterator[None]:
        """Nothing that the stream is given goes on before the end."""
        gate = threading.Event()
        self.aclrtLaunchHostFunc(stream, self.function(gate.wait), None)
        try:
            yield
        finally:
            gate.set()

    def live(self, kind: str) -> int:
        """How many objects of a kind are alive."""
        return int(self.library.simulated_ascend_live(kind.encode()))

    def misuses(self) -> list[str]:
        """What was recorded."""
        count = self.library.simulated_ascend_misuses()
        return [self.library.simulated_ascend_misuse(index).decode() for index in range(count)]


Program = Callable[[Acl], None]


@dataclass(frozen=True)
class Case:
    """A program, what it is recorded for, and its environment."""

    program: Program
    recorded: tuple[str, ...]
    environment: dict[str, str]


CASES: dict[str, Case] = {}
"""By `module.function`; the modules fill it."""


def program(*recorded: str, **environment: str) -> Callable[[Program], Program]:
    """Registers a program that is recorded for exactly this, with SIMULATED_ASCEND_ variables."""

    def register(function: Program) -> Program:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        CASES[name] = Case(function, recorded, environment)
        return function

    return register


def run(name: str, folder: Path, **variables: str) -> tuple[list[str], list[str]]:
    """What the library has recorded of a program, as it says itself and as the report's file says."""
    report = folder / "report"
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("SIMULATED_ASCEND_") and key != "ASCEND_RT_VISIBLE_DEVICES"
    }
    environment.update(variables or {LIBRARY: str(library())})
    environment["SIMULATED_ASCEND_REPORT"] = str(report)
    for key, value in CASES[name].environment.items():
        environment[key if key.startswith("ASCEND_") else f"SIMULATED_ASCEND_{key}"] = value
    command = [sys.executable, "-S", "-m", "core.vendors.ascend.simulated.library", name]
    root = SOURCES.parents[3]
    done = subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (
        f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )
    lines = report.read_text().splitlines() if report.exists() else []
    return json.loads(done.stdout.splitlines()[-1]), lines


def main(name: str) -> None:
    """Runs one program in this process and prints what it was recorded for."""
    # By the modules' own registry: this one is `__main__`.
    registry = importlib.import_module("core.vendors.ascend.simulated.library")
    module = importlib.import_module(f"core.vendors.ascend.simulated.{name.partition('.')[0]}")
    acl = getattr(module, "Libraries", registry.Acl)()
    registry.CASES[name].program(acl)
    print(json.dumps(acl.misuses()))


if __name__ == "__main__":
    main(sys.argv[1])

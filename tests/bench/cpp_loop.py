"""The loop of operators.cc, compiled on first use against the installed torch."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch

TORCH = Path(torch.__file__).parent
SOURCE = Path(__file__).with_name("operators.cc")
BUILT = Path(__file__).resolve().parents[2] / "target" / "bench"
# The flags with which adapters/torch/build.rs compiles the shim.
FLAGS = [
    "-std=c++17",
    "-O2",
    "-fno-plt",
    "-shared",
    "-fPIC",
    "-DNDEBUG",
    "-D_GLIBCXX_USE_CXX11_ABI=1",
]

#: Nanoseconds per call, of an operator, a device ("cpu" or "flagos") and a number of iterations.
Loop = Callable[[str, str, int], float]


def load() -> Loop | None:
    """The loop; None where there is no C++ compiler (CXX, or g++)."""
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    if shutil.which(compiler[0]) is None:
        return None
    library = ctypes.CDLL(str(_compiled(compiler)))
    bench = library.bench_operator
    bench.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_double),
    ]
    bench.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def loop(op: str, device: str, iterations: int) -> float:
        nanoseconds = ctypes.c_double()
        reason = bench(op.encode(), device == "flagos", iterations, ctypes.byref(nanoseconds))
        if reason:
            text = ctypes.string_at(reason).decode()
            free(reason)
            raise ValueError(text)
        return nanoseconds.value

    return loop


def _compiled(compiler: list[str]) -> Path:
    """The library of this source for this torch."""
    command = [
        *compiler,
        *FLAGS,
        *("-isystem", str(TORCH / "include")),
        str(SOURCE),
        *(f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-lc10"),
    ]
    told = f"{torch.__version__} {command} {SOURCE.read_text()}"
    library = BUILT / f"operators-{hashlib.sha256(told.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(unfinished)], check=True)
        unfinished.rename(library)
    return library

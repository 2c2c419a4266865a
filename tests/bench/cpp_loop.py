"""C++ loops of benchmarks, compiled on first use against the installed torch."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

TORCH = Path(torch.__file__).parent
FOLDER = Path(__file__).parent
BUILT = Path(__file__).resolve().parents[2] / "target" / "bench"
# The flags with which adapters/torch/shim.mk compiles the shim.
FLAGS = [
    "-std=c++20",
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
    """The loop of operators.cc; None where there is no C++ compiler."""
    library = compiled("operators.cc")
    if library is None:
        return None
    bench = function(library, "bench_operator", ctypes.c_char_p, ctypes.c_int)
    return lambda op, device, iterations: bench(op.encode(), device == "flagos", iterations)


def function(library: Path, name: str, *arguments: Any) -> Callable[..., float]:
    """A function of a compiled loop: it takes `arguments` and a number of iterations, and returns nanoseconds per call.

    Raises ValueError with the loop's reason.
    """
    bench = ctypes.CDLL(str(library))[name]
    bench.argtypes = [*arguments, ctypes.c_int64, ctypes.POINTER(ctypes.c_double)]
    bench.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def loop(*given: Any) -> float:
        nanoseconds = ctypes.c_double()
        reason = bench(*given, ctypes.byref(nanoseconds))
        if reason:
            text = ctypes.string_at(reason).decode()
            free(reason)
            raise ValueError(text)
        return nanoseconds.value

    return loop


def compiled(source: str, others: Sequence[Path] = (), flags: Sequence[str] = ()) -> Path | None:
    """The library of a source of this folder and of `others`, for this torch; None without a C++ compiler."""
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    if shutil.which(compiler[0]) is None:
        return None
    sources = [FOLDER / source, *others]
    command = [
        *compiler,
        *FLAGS,
        *flags,
        *("-isystem", str(TORCH / "include")),
        *("-isystem", str(TORCH / "include/torch/csrc/api/include")),
        *map(str, sources),
        *(f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-lc10"),
    ]
    report = f"{torch.__version__} {command} {[path.read_text() for path in sources]}"
    digest = hashlib.sha256(report.encode()).hexdigest()[:16]
    library = BUILT / f"{Path(source).stem}-{digest}.so"
    if not library.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(unfinished)], check=True)
        unfinished.rename(library)
    return library

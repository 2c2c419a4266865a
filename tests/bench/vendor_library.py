"""What a call of a library's kernel costs, part by part: `make bench-vendor-library`.

    FLAGOS_VENDOR=example FLAGOS_VENDOR_PATH=dist/vendors python -m tests.bench.vendor_library [--rounds N]
        [--iterations N] [--json]

`add` on 8×8 float32 whose signature is known, on a vendor whose library computes. Each part runs in a loop by itself,
and all take turns: the kernel, called in C over its table; torch's dispatcher with its boxing; the description of the
arguments (unpack); the shape and dtype of the result (infer); a new tensor (allocate); then whole calls from C++ and
from Python. Prints nanoseconds; asserts nothing.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from flagos import _core
from tests.bench import cpp_loop, machine
from tests.bench.overhead import table
from tests.bench.timing import Measured, command, nanoseconds_per_call

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "adapters" / "torch" / "csrc"
SOURCES = [
    CSRC / f"{name}.cc"
    for name in (
        "aten/traits",
        *(f"vendor_library/{part}" for part in ("call", "form", "inference")),
    )
]
FLAGS = [f"-I{folder}" for folder in (CSRC, ROOT / "core" / "include", ROOT / "comm" / "include")]
PARTS = {
    "kernel": "the kernel, in C",
    "dispatch": "torch's dispatcher and boxing",
    "unpack": "arguments described",
    "infer": "result's shape and dtype",
    "allocate": "a new tensor",
    "add.out": "whole: add(out=), from C++",
    "add": "whole: add, from C++",
}


def sides(iterations: int) -> dict[str, Callable[[], float]]:
    """Every part, in nanoseconds per call. Raises SystemExit without a compiler or on a vendor of another kind."""
    if _core.vendor_info()["serving"] != "library":
        sys.exit(
            f"vendor {_core.vendor()!r} has no library whose kernels compute: set FLAGOS_VENDOR and FLAGOS_VENDOR_PATH "
            "(`make example-vendor` builds one)"
        )
    library = cpp_loop.compiled("vendor_library.cc", SOURCES, FLAGS)
    if library is None:
        sys.exit("no C++ compiler was found: install g++ or name one by CXX")
    bench = cpp_loop.function(library, "bench_library", ctypes.c_void_p, ctypes.c_char_p)
    api = _address(_core.api_capsule())

    def part(name: str) -> float:
        torch.flagos.synchronize()
        return bench(api, name.encode(), iterations)

    x, y = torch.ones(8, 8, device="flagos"), torch.ones(8, 8, device="flagos")
    calls = {
        "whole: add(out=), from Python": partial(torch.add, x, y, out=torch.empty_like(x)),
        "whole: add, from Python": partial(torch.add, x, y),
    }
    return {
        **{answer: partial(part, name) for name, answer in PARTS.items()},
        **{
            answer: partial(nanoseconds_per_call, call, iterations, torch.flagos.synchronize)
            for answer, call in calls.items()
        },
    }


def _address(capsule: object) -> int:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.argtypes, name.restype = [ctypes.py_object], ctypes.c_char_p
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return int(pointer(capsule, name(capsule)))


def report(measured: Measured, iterations: int) -> str:
    """The parts as a table, and what a whole call costs over the kernel."""
    spreads = measured.spreads()
    kernel = spreads[PARTS["kernel"]].median
    lines = [
        f"{machine.setting('flagos', 'torch')} Vendor {_core.vendor()}; "
        f"{iterations} calls a round; least / median / greatest of the rounds.",
        "",
        *table(
            (
                (
                    answer,
                    spread.in_order(),
                    f"{spread.median - kernel:.0f}" if answer.startswith("whole") else "",
                )
                for answer, spread in spreads.items()
            ),
            ("part", "ns", "over the kernel, ns"),
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    command(__doc__, sides, report, iterations=5000)

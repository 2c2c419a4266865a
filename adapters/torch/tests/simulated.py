"""Builds the simulated libraries of vendors, which `comm/simulated` has the sources of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests.compiled import CXX, MACHINE, compiled

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "comm" / "simulated"

OBJECTS = {
    "calls": ("calls", []),
    "group": ("group", []),
    "host": ("host", []),
    "sockets": ("sockets", []),
    "hccl": ("hccl", []),
    "nccl": ("nccl", []),
    "mccl": ("nccl", ["-DSIMULATED_MCCL"]),
    "flagcx": ("flagcx", []),
    "old_flagcx": ("flagcx", ["-DSIMULATED_OLD_FLAGCX"]),
}
LIBRARIES = {
    "new": ["calls", "group", "host", "sockets", "hccl", "nccl", "flagcx"],
    "other": ["calls", "group", "host", "sockets", "mccl", "old_flagcx"],
}


@cache
def simulated_libraries() -> dict[str, Path]:
    """The libraries by name."""
    compiler = [*CXX, "-std=c++17", "-fPIC"]

    def compile_one(name: str) -> Path:
        source, defines = OBJECTS[name]
        command = [*compiler, "-c", f"-I{ROOT}/core/include", *defines]
        return compiled(f"{name}.o", command, [SOURCES / f"{source}.cc"])

    with ThreadPoolExecutor(2) as both:
        objects = dict(zip(OBJECTS, both.map(compile_one, OBJECTS), strict=True))
    return {
        name: compiled(
            f"lib{name}.so",
            [*compiler, "-shared"],
            [objects[each] for each in parts],
            libraries=["-lrt"],
        )
        for name, parts in LIBRARIES.items()
    }


DRIVER = ROOT / "core/vendors/cuda/tests/conformance/simulated"
"""Sources of a CUDA driver and of NVIDIA's management library over host memory, two devices."""


@cache
def simulated_driver() -> Path:
    """A folder for LD_LIBRARY_PATH in which flagos finds two NVIDIA devices; torch finds the driver too old."""
    flags = "-std=c++17 -O0 -fPIC -fvisibility=hidden -shared -pthread"
    command = [*CXX, *flags.split()]
    library = compiled("libcuda.so.1", command, [DRIVER / "libcuda.cc"], within=[MACHINE])
    management = library.with_name("libnvidia-ml.so.1")
    if not management.exists():
        management.symlink_to(library.name)
    return library.parent

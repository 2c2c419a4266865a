"""Builds the simulated libraries of vendors, which `tests/simulated_ccl` has the sources of."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "tests" / "simulated_ccl"

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
    """The libraries by name, built once a process."""
    folder = Path(tempfile.mkdtemp(prefix="simulated-ccl-"))
    atexit.register(shutil.rmtree, folder)
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-fPIC"]

    def compile_one(name: str) -> None:
        source, defines = OBJECTS[name]
        command = [*compiler, "-c", f"-I{ROOT}/core/include", *defines, f"{SOURCES}/{source}.cc"]
        subprocess.run([*command, "-o", f"{folder}/{name}.o"], check=True)

    with ThreadPoolExecutor(2) as both:
        list(both.map(compile_one, OBJECTS))
    built = {}
    for name, objects in LIBRARIES.items():
        built[name] = folder / f"lib{name}.so"
        files = [f"{folder}/{each}.o" for each in objects]
        subprocess.run([*compiler, "-shared", *files, "-lrt", "-o", str(built[name])], check=True)
    return built


DRIVER = ROOT / "core" / "tests" / "vendor_conformance_cuda" / "simulated"
"""Sources of a CUDA driver and of NVIDIA's management library over host memory, two devices."""


@cache
def simulated_driver() -> Path:
    """A folder for LD_LIBRARY_PATH in which flagos finds two NVIDIA devices; torch finds the driver too old."""
    folder = Path(tempfile.mkdtemp(prefix="simulated-driver-"))
    atexit.register(shutil.rmtree, folder)
    parts = ("state", "devices", "streams", "ptx", "kernels", "nvml")
    source = b"".join((DRIVER / f"{part}.cc").read_bytes() for part in parts)
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-x", "c++", "-std=c++17"]
    library = folder / "libcuda.so.1"
    command = [*compiler, "-O0", "-fPIC", "-shared", "-pthread", "-o", str(library), "-"]
    subprocess.run(command, input=source, check=True)
    shutil.copy(library, folder / "libnvidia-ml.so.1")
    return folder

"""The machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def processor() -> str:
    """The processor's own name, as Linux reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def versions(*distributions: str) -> dict[str, str]:
    """Version of Python and of each installed distribution."""
    found = {"python": platform.python_version()}
    for name in distributions:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def setting(*distributions: str) -> str:
    """The processor, its cores, and the versions of Python and of distributions, as reports begin."""
    names = ", ".join(f"{name} {number}" for name, number in versions(*distributions).items())
    return f"{processor()}, {cores()} cores. {names}."


def gpu() -> str:
    """Name of the first NVIDIA device. Raises where torch finds none."""
    import torch

    return torch.cuda.get_device_name(0)


def driver() -> str:
    """Version of NVIDIA's driver, as its own tool reports it, or "unknown"."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.splitlines()[0].strip()

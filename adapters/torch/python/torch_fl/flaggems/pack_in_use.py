"""The kernel pack of this process, which is used only where it was made for: on its chip, with its versions, and with a
driver that takes it.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from torch_fl.flaggems import configurations, pack_file, package
from torch_fl.flaggems.pack_file import BrokenPack, Header, Pack
from torch_fl.flaggems.presence import PACK as PACK
from torch_fl.native import native

OUTSIDE = "FLAGOS_PACK_OUTSIDE"
_OUTSIDE = ("native", "jit")

_open: list[Pack] = []  # mapped as long as the process lives, because C++ has their addresses


@dataclass(frozen=True)
class Machine:
    """The machine that a pack has to fit. `driver` is the driver's newest CUDA, as 13000 for 13.0; 0 without one."""

    vendor: str
    chip: str
    driver: int
    flaggems: str
    torch: str


def this_machine() -> Machine:
    """This machine. Opens no device."""
    return Machine(
        native().vendor,
        native().product_name(),
        cuda_driver(),
        package.version(),
        torch.__version__,
    )


def cuda_driver() -> int:
    """The newest CUDA that NVIDIA's driver takes, as its management library tells it; 0 without a driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    if library.nvmlInit_v2() != 0:
        return 0
    try:
        version = ctypes.c_int()
        status = library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version))
        return version.value if status == 0 else 0
    finally:
        library.nvmlShutdown()


def refusal(header: Header, machine: Machine) -> str | None:
    """Why a pack must not be used on a machine; None where it may."""

    def differs(what: str, made: Any, here: Any) -> str | None:
        return (
            f"it was made for {what} {made}, and here is {here or 'none'}" if made != here else None
        )

    wrong = (
        differs("devices of vendor", header["vendor"], machine.vendor)
        or differs("the chip", header["chip"], machine.chip)
        or differs("FlagGems", header["flaggems"], machine.flaggems)
        or differs("torch", _release(header["torch"]), _release(machine.torch))
    )
    if wrong is not None:
        return wrong
    if header["driver"] > machine.driver:
        return (
            f"its programs need a driver for CUDA {cuda(header['driver'])}, and this one takes up to "
            f"{cuda(machine.driver)}"
        )
    return None


def _release(version: str) -> str:
    return version.partition("+")[0]


def cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def opened(path: Path, machine: Machine | None = None) -> Pack:
    """Map a pack, check it, and hand it to C++, which loads its programs as they are called.

    Raises BrokenPack, a ValueError, with the reason and the next step.
    """
    pack = pack_file.read(path)
    try:
        wrong = refusal(pack.header, machine or this_machine())
        kernels = [int(number) for kernel in pack.header["kernels"] for number in kernel]
    except (KeyError, TypeError) as error:
        raise BrokenPack(f"{path} has a broken header: {type(error).__name__}: {error}") from None
    if wrong is not None:
        raise BrokenPack(
            f"{path} is not used: {wrong}; make one for this machine with `flagos pack`, or unset FLAGOS_PACK"
        )
    torch.ops.flagos.use_pack(pack.address, pack.nbytes, kernels)
    _open.append(pack)
    return pack


def outside() -> bool:
    """Whether FlagGems serves calls that are not in the pack. Raises ValueError for another value of the variable."""
    value = os.environ.get(OUTSIDE) or _OUTSIDE[0]
    if value not in _OUTSIDE:
        raise ValueError(f"{OUTSIDE}={value}: expected one of {', '.join(_OUTSIDE)}")
    return value == "jit"


def alone() -> bool:
    """Whether FlagGems serves calls of the pack in use, and no others."""
    return in_use() is not None and not outside()


@cache
def in_use() -> Pack | None:
    """The pack that FLAGOS_PACK names, which C++ has from then on; None without one.

    Raises ValueError for a pack that is broken, or was made for something other than this machine.
    """
    value = os.environ.get(PACK)
    if not value:
        return None
    found = opened(Path(value))
    configurations.take(found.header["configurations"])
    return found

"""A pack is used only where it was made for: on its chip, with a driver that takes it, and with its versions."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torch_fl.flaggems.packs import file
from torch_fl.flaggems.packs.file import BrokenPack, Pack

_kept: list[Pack] = []  # mapped as long as the process lives, because C++ has their addresses


@dataclass(frozen=True)
class Machine:
    """What a pack has to fit. `driver` is the newest CUDA that the driver takes, as 13000 for 13.0; 0 without one."""

    vendor: str
    chip: str
    driver: int
    flaggems: str
    torch: str


def this_machine() -> Machine:
    """This machine. Opens no device."""
    from torch_fl.flaggems import package, tables
    from torch_fl.native import native

    return Machine(
        native().vendor,
        tables.chip(),
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
        asked = library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version))
        return version.value if asked == 0 else 0
    finally:
        library.nvmlShutdown()


def refusal(header: dict[str, Any], machine: Machine) -> str | None:
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
            f"its programs need a driver for CUDA {_cuda(header['driver'])}, and this one takes up to "
            f"{_cuda(machine.driver)}"
        )
    return None


def _release(version: str) -> str:
    return version.partition("+")[0]


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def opened(path: Path, machine: Machine | None = None) -> Pack:
    """Map a pack, check it, and hand it to C++, which loads its programs as they are called.

    Raises BrokenPack, a ValueError, with the reason and the next step.
    """
    pack = file.read(path)
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
    _kept.append(pack)
    return pack

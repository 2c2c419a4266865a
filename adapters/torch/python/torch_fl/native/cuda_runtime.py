"""Whose libraries serve torch's device type cuda in this process: NVIDIA's, or those of MACA, MetaX's platform.

MetaX's build of torch registers its kernels under torch's CUDA key and shows its devices as `cuda`. It is told by its
version, or by the runtime that is loaded with it.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import torch

NVIDIA, METAX = "cuda", "metax"

MACA_RUNTIME = "libmcruntime.so"
_CARRIES_CUDA = "libruntime_cu.so"
"""The library of MACA that has CUDA's functions for MetaX's torch."""
_NVIDIA_RUNTIME = "libcudart.so"
_FORWARDS = "flagos_forwards_to"
"""The function by which a library in the place of MACA's runtime says to which vendor's it forwards."""
_VERSION = re.compile(r"\+(?:.*\.)?metax")


def vendors() -> tuple[str, ...]:
    """The vendors whose devices torch's type cuda computes on, the first one being its own.

    A second one is there where a library in the place of MACA's runtime says that it forwards to the first one's.
    """
    if _VERSION.search(torch.__version__) or _loaded(_CARRIES_CUDA):
        return (METAX,)
    runtime = _loaded(MACA_RUNTIME)
    if runtime is None:
        return (NVIDIA,)
    if _forwards_to(runtime) == NVIDIA:
        return (NVIDIA, METAX)
    # The core may have loaded it, in a process whose torch is for the CPU alone.
    is_nvidias = torch.version.cuda is None or _loaded(_NVIDIA_RUNTIME)
    return (NVIDIA,) if is_nvidias else (METAX,)


def missing(vendor: str) -> str | None:
    """Names what this process lacks for torch's cuda to serve a vendor, with the next step; None if it lacks nothing.

    Vendors of other names say themselves that torch serves them.
    """
    found = vendors()
    if vendor not in (NVIDIA, METAX) or vendor in found:
        return None
    if vendor == METAX:
        return (
            f"devices of vendor 'metax' are served by MetaX's build of torch, whose version ends in `+metax` and whose "
            f"device type cuda is MACA's ({_CARRIES_CUDA}, {MACA_RUNTIME}); this torch, {torch.__version__}, is "
            f"{_described()}. Install the torch of MetaX's portal or container, or FLAGOS_VENDOR=host leaves the "
            "devices alone"
        )
    return (
        f"this torch, {torch.__version__}, computes by MACA, on devices of vendor 'metax', and vendor {vendor!r} needs "
        "a build of torch for NVIDIA's CUDA. FLAGOS_VENDOR=metax takes the devices that it computes on"
    )


def _described() -> str:
    """Names the provider of torch's device type cuda."""
    if torch.version.cuda is None:
        return "built without the device type cuda"
    loaded = _loaded(_NVIDIA_RUNTIME)
    by = f", by {Path(loaded).name}" if loaded else ""
    return f"NVIDIA's, built for CUDA {torch.version.cuda}{by}"


def _loaded(name: str) -> str | None:
    """The path of a library that is loaded in this process; None where it is not."""
    mapped = Path("/proc/self/maps").read_text()
    found = re.search(rf"/{re.escape(name)}[^/\n]*$", mapped, re.MULTILINE)
    if found is None:
        return None
    line = mapped[mapped.rfind("\n", 0, found.start()) + 1 : found.end()]
    return line[line.index("/") :]


@cache
def _forwards_to(path: str) -> str | None:
    """The vendor that a library says it forwards to."""
    function = getattr(ctypes.CDLL(path), _FORWARDS, None)
    if function is None:
        return None
    function.restype = ctypes.c_char_p
    text: bytes | None = function()
    return text.decode() if text is not None else None

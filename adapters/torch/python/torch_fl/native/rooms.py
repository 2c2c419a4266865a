"""The rooms of torch's own device types: packages of torch_fl with the types' names.

A room has a module `native`, whose `NATIVE` is the type's subclass of `TorchNative`, and what that subclass names.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torch_fl.native.description import Description, built_into_torch

_TORCH_FL = Path(__file__).parents[1]


class OtherTorch(ImportError):
    """This build of torch does not compute on the vendor's devices. `fix` is the next step."""

    fix = "install the build of torch that the message names, or set FLAGOS_VENDOR=host"


def require(described: Description) -> Any:
    """The class of the device type that serves the vendor.

    Raises OtherTorch where torch does not have the type, or has it for another vendor's devices, and ImportError where
    torch_fl does not know it.
    """
    name, device_type = described["name"], described["torch_device_type"] or ""
    instead = "FLAGOS_VENDOR=host leaves its devices alone"
    kind = module(device_type, "native").NATIVE if has(device_type) else None
    if kind is not None and (reason := kind.missing(name)) is not None:
        raise OtherTorch(reason)
    if not built_into_torch(device_type):
        raise OtherTorch(
            f"devices of vendor {name!r} are there, but this torch, {torch.__version__}, was built without its device "
            f"type {device_type!r}, which computes on them; install a build of torch that has it, or {instead}"
        )
    if kind is None:
        raise ImportError(
            f"torch computes on devices of vendor {name!r} by its device type {device_type!r}, and torch_fl serves "
            f"flagos by {', '.join(names())} alone; {instead}"
        )
    return kind


def names() -> list[str]:
    """The device types that have a room, sorted."""
    packages = pkgutil.iter_modules([str(_TORCH_FL)])
    return sorted(found.name for found in packages if found.ispkg and has(found.name))


def has(device_type: str) -> bool:
    """Whether there is a room for this device type."""
    return device_type.isidentifier() and (_TORCH_FL / device_type / "native.py").is_file()


def module(device_type: str, name: str) -> ModuleType:
    """A module of the type's room. Raises ImportError where there is none."""
    return importlib.import_module(f"{_TORCH_FL.name}.{device_type}.{name}")

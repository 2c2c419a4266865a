"""The rooms of torch's device types: packages of lightx2v_fl with the types' names, for what one type alone needs."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_PACKAGE = __name__.rpartition(".")[0]


def has(device_type: str, name: str) -> bool:
    """Whether the type has a room with this module. Imports neither."""
    return (
        device_type.isidentifier()
        and (Path(__file__).parent / device_type).is_dir()
        and (find_spec(f"{_PACKAGE}.{device_type}.{name}") is not None)
    )


def names(name: str) -> list[str]:
    """The device types whose room has this module, sorted."""
    packages = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(found.name for found in packages if found.ispkg and has(found.name, name))


def find(device_type: str, name: str) -> ModuleType | None:
    """A module of the type's room; None where there is none."""
    if not has(device_type, name):
        return None
    return importlib.import_module(f"{_PACKAGE}.{device_type}.{name}")

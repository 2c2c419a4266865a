"""The devices of this machine, as the active vendor sees them."""

from __future__ import annotations

from typing import TypedDict

from flagos import _core
from flagos.logs import connect

connect()


class Device(TypedDict):
    """One device."""

    index: int
    name: str
    #: As in ``FLAGOS_VENDOR``: ``host``, ``cuda``, ...
    vendor: str
    #: Bytes.
    total_memory: int
    #: Multiprocessors; cores on the host.
    multi_processor_count: int
    #: Compute capability.
    major: int
    minor: int


def device_count() -> int:
    """How many devices there are. Initialises nothing and never fails: 0 when something is wrong."""
    return _core.device_count()


def devices() -> list[Device]:
    """Every device. Raises :class:`flagos.FlagosError` when the vendor cannot be used."""
    return _core.devices()


def initialize() -> None:
    """Reads the configuration, resolves the plan and starts the vendor; free when already done.

    Raises :class:`flagos.ConfigError` for anything wrong in a file or a variable, and
    :class:`flagos.ForkedError` in a forked child of a process that had initialised.
    """
    _core.init()

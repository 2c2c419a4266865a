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


class VendorReport(TypedDict):
    """One vendor of this build, as it looks without being started."""

    #: As in ``FLAGOS_VENDOR``.
    name: str
    #: How many devices it would show.
    devices: int
    #: Whether its devices are the ones used.
    chosen: bool
    #: Why it is chosen or not, or cannot be used.
    reason: str


def device_count() -> int:
    """How many devices there are. Initialises nothing and never fails: 0 when something is wrong."""
    return _core.device_count()


def devices() -> list[Device]:
    """Every device. Raises :class:`flagos.FlagosError` when the vendor cannot be used."""
    return _core.devices()


def vendors() -> list[VendorReport]:
    """Every vendor, the best first. Initialises nothing.

    Raises :class:`flagos.ConfigError` for a wrong configuration, not for a vendor that is missing.
    """
    return _core.vendors()


def initialize() -> None:
    """Reads the configuration, resolves the plan and starts the vendor; free when already done.

    Raises :class:`flagos.ConfigError` for anything wrong in a file or a variable, and
    :class:`flagos.ForkedError` in a forked child of a process that had initialised.
    """
    _core.init()

"""The devices of this machine, as the active vendor shows them."""

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
    """The state of one vendor of this build, found without starting it."""

    #: As in ``FLAGOS_VENDOR``.
    name: str
    #: The number of devices that it would show.
    devices: int
    #: Whether its devices are the ones used.
    chosen: bool
    #: The reason why it is chosen, not chosen, or unusable.
    reason: str


def device_count() -> int:
    """The number of devices, 0 when something is wrong. Initialises nothing and never fails."""
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

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
    #: As in ``FLAGOS_VENDOR``, such as ``host``.
    vendor: str
    #: Bytes.
    total_memory: int
    #: Multiprocessors; cores on the host.
    multi_processor_count: int
    #: Compute capability.
    major: int
    minor: int


class VendorReport(TypedDict):
    """The state of one vendor, found without starting it, and without loading its library."""

    #: As in ``FLAGOS_VENDOR``.
    name: str
    #: ``built in``, the path of the manifest that tells of it, or ``not installed``.
    source: str
    #: The number of devices that it would show; ``None`` while its library has not been tried.
    devices: int | None
    #: Whether its devices are the ones used.
    chosen: bool
    #: The reason why it is chosen, not chosen, or unusable.
    reason: str


class MissingVendor(TypedDict):
    """A vendor whose chip this machine has, and whose distribution is not installed."""

    name: str
    #: The device file or the library by which the machine is known to have the chip.
    sign: str
    distribution: str
    #: The command that installs it.
    install: str


class VendorVariable(TypedDict):
    """An environment variable of a vendor."""

    name: str
    #: What it does.
    text: str


class VendorLibrary(TypedDict):
    """A library that a vendor uses."""

    #: The name by which the dynamic linker finds it.
    soname: str
    #: What it is for.
    text: str
    #: Whether the vendor needs it.
    required: bool


class VendorInfo(TypedDict):
    """The particulars of a vendor, as data."""

    name: str
    #: The version of the vendor's code, for people.
    version: str
    #: Other names that select the vendor.
    aliases: list[str]
    #: How a framework computes on the devices: ``host`` (host code on device memory), ``torch`` (torch on its
    #: own ``torch_device_type``) or ``library`` (kernels of the vendor's library).
    serving: str
    torch_device_type: str | None
    #: The collective engine for the vendor's memory.
    collective_engine: str | None
    #: The name of the vendor's Triton backend: a folder of ``triton.backends``.
    triton_backend: str | None
    #: The vendor's name in FlagGems.
    flaggems_vendor: str | None
    #: The ``DLDeviceType`` of device memory.
    dlpack_device_type: int
    variables: list[VendorVariable]
    libraries: list[VendorLibrary]
    #: Texts that mean, in an error of any library over the vendor, that the device is lost.
    device_lost: list[str]


def device_count() -> int:
    """The number of devices, 0 when something is wrong. Initialises nothing and never fails."""
    return _core.device_count()


def devices() -> list[Device]:
    """Every device. Raises :class:`flagos.FlagosError` when the vendor cannot be used."""
    return _core.devices()


def vendors() -> list[VendorReport]:
    """Every vendor, the best first. Initialises nothing, and loads no library.

    Raises :class:`flagos.ConfigError` for a wrong configuration, not for a vendor that is missing.
    """
    return _core.vendors()


def initialize() -> None:
    """Reads the configuration, resolves the plan and starts the vendor; free when already done.

    Raises :class:`flagos.ConfigError` for anything wrong in a file or a variable, and
    :class:`flagos.ForkedError` in a forked child of a process that had initialised.
    """
    _core.init()

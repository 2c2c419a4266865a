"""The checks of the torch adapter: torch, the extension, FlagGems; then small computations on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flagos.doctor.check import Check, Status
from torch_fl_cli.doctor import device, distributed, framework, kernels


def checks(timeout: float) -> Iterator[Check]:
    """The checks that do not need the device. ``timeout`` (seconds) is for each process that is started."""
    yield from framework.torch_and_adapter(timeout)
    yield framework.device_plugins()
    yield framework.autoload()
    yield from framework.cuda_names()
    yield framework.fork()
    yield kernels.triton()
    yield kernels.flaggems()


#: Checks that the canaries depend on. After their failure the canaries would only fail less clearly.
NEEDED = ("torch", "torch_fl", "plan")


def canaries(timeout: float, found: Mapping[str, Check]) -> Iterator[Check]:
    """Computations on the device and between processes, unless ``found`` says that they cannot be."""
    if any(name in found and found[name].status is Status.FAIL for name in NEEDED):
        return
    expected = found["autoload"].status is Status.OK
    yield from device.canaries(timeout, autoload_expected=expected)
    yield from distributed.collectives(timeout)

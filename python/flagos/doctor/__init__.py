"""Examines an installation, even a broken one: whatever may crash runs in its own process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from flagos.doctor import (
    configuration,
    device,
    distributed,
    framework,
    installation,
    kernels,
    libraries,
    transformer_engine,
)
from flagos.doctor.check import Check, Status, worst

__all__ = ["Check", "Status", "diagnose", "summary", "worst"]


def diagnose(*, timeout: float, canaries: bool) -> Iterator[Check]:
    """Every check, as it finishes. ``timeout`` (seconds) is for each process that is started."""
    yield installation.python()
    core = installation.core(timeout)
    yield core
    yield from installation.distributions()
    if core.status is Status.OK:
        yield from configuration.variables()
        configured = configuration.files()
        yield configured
        if configured.status is not Status.FAIL:
            yield configuration.devices()
            yield from configuration.vendors()
    broken = core.status is Status.FAIL
    for check in framework.torch_and_adapter(timeout):
        broken |= check.status is Status.FAIL
        yield check
    with_adapter = find_spec("torch_fl") is not None
    yield framework.device_plugins()
    autoload = framework.autoload()
    if with_adapter:
        yield autoload
        yield framework.fork()
    yield kernels.triton()
    yield kernels.flaggems()
    yield from transformer_engine.checks(timeout)
    yield from libraries.libraries()
    # What is reported as broken above would only fail again, less clearly.
    if canaries and not broken and with_adapter:
        expected = autoload.status is Status.OK
        yield from device.canaries(timeout, autoload_expected=expected)
        yield from distributed.collectives(timeout)


def summary(checks: Sequence[Check]) -> str:
    """One closing line."""
    counts = {status: sum(check.status is status for check in checks) for status in Status}
    return ", ".join(f"{count} {status.value}" for status, count in counts.items())

"""Examination of an installation, even a broken one: code that may crash runs in its own process.

Adapters contribute the checks of their frameworks: see :mod:`flagos.adapters`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagos.doctor import configuration, contributed, installation, libraries
from flagos.doctor.check import Check, Status, worst

__all__ = ["Check", "Status", "diagnose", "summary", "worst"]


def diagnose(*, timeout: float, canaries: bool) -> Iterator[Check]:
    """Every check, as it finishes. ``timeout`` (seconds) is for each process that is started."""
    found: dict[str, Check] = {}
    for check in _checks(timeout):
        found[check.name] = check
        yield check
    # With a broken core the canaries would repeat its failure, less clearly.
    if canaries and found["core"].status is not Status.FAIL:
        yield from contributed.canaries(timeout, found)


def _checks(timeout: float) -> Iterator[Check]:
    yield installation.python()
    core = installation.core(timeout)
    yield core
    yield from installation.distributions()
    known = list(libraries.ENGINES)
    if core.status is Status.OK:
        yield from configuration.variables()
        configured = configuration.files()
        yield configured
        in_use = False
        if configured.status is not Status.FAIL:
            devices = configuration.devices()
            in_use = devices.status is not Status.FAIL
            yield devices
            yield from configuration.vendors()
        known = [*libraries.of_vendors(in_use=in_use), *known]
    yield from contributed.checks(timeout)
    yield from libraries.libraries(known)


def summary(checks: Sequence[Check]) -> str:
    """The closing line, with the number of checks of each status."""
    counts = {status: sum(check.status is status for check in checks) for status in Status}
    return ", ".join(f"{count} {status.value}" for status, count in counts.items())

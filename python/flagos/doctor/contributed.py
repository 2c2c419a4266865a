"""The checks that adapters contribute, and the check for adapters that a variable needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from flagos.adapters import CANARIES, CHECKS, Contribution, contributions, published
from flagos.doctor.check import Check, fail
from flagos.doctor.installation import installed_version
from flagos.messages import described


def checks(timeout: float) -> Iterator[Check]:
    """The checks of every installed adapter. ``timeout`` (seconds) is for each process they start."""
    yield from requested_in_vain()
    for contribution in contributions(CHECKS):
        yield from _guarded(contribution, timeout)


def canaries(timeout: float, found: Mapping[str, Check]) -> Iterator[Check]:
    """The canaries of every installed adapter. ``found`` are the checks so far, by name.

    An adapter whose checks failed to run is skipped.
    """
    for contribution in contributions(CANARIES):
        if _name(contribution) not in found:
            yield from _guarded(contribution, timeout, found)


def requested_in_vain() -> Iterator[Check]:
    """A failure for each variable of the environment that needs a published adapter not installed."""
    for adapter in published():
        for variable, value in adapter.variables.items():
            if os.environ.get(variable) == value and not installed_version(adapter.distribution):
                yield fail(
                    variable,
                    f"{variable}={value} is set, but {adapter.package} is not installed",
                    f"{adapter.fix}, or unset {variable}",
                )


def _guarded(contribution: Contribution, *arguments: Any) -> Iterator[Check]:
    """The checks of an adapter. An exception becomes one more check, and other adapters still run."""
    try:
        for check in contribution.load()(*arguments):
            if not isinstance(check, Check):
                raise TypeError(
                    f"it reports {type(check).__name__} where flagos.doctor.Check belongs"
                )
            yield check
    # The code of an adapter may raise any exception.
    except Exception as error:
        distribution = contribution.distribution
        yield fail(
            _name(contribution),
            f"{contribution.entry.value} of {distribution} cannot be asked: {described(error)}",
            f"pip install --force-reinstall --no-deps {distribution}",
        )


def _name(contribution: Contribution) -> str:
    """The name of the check for an adapter that cannot be asked."""
    return f"adapter {contribution.name}"

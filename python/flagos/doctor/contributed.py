"""The checks that adapters contribute, and adapters that a variable asks for in vain."""

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
    yield from asked_for_in_vain()
    for contribution in contributions(CHECKS):
        yield from _guarded(contribution, timeout)


def canaries(timeout: float, found: Mapping[str, Check]) -> Iterator[Check]:
    """Their computations. ``found`` are the checks so far, by name: what is broken need not be tried."""
    for contribution in contributions(CANARIES):
        if _name(contribution) not in found:
            yield from _guarded(contribution, timeout, found)


def asked_for_in_vain() -> Iterator[Check]:
    """A variable of the environment asks for a published adapter that is not installed."""
    for adapter in published():
        for variable, value in adapter.variables.items():
            if os.environ.get(variable) == value and not installed_version(adapter.distribution):
                yield fail(
                    variable,
                    f"{variable}={value} is set, but {adapter.package} is not installed",
                    f"{adapter.fix}, or unset {variable}",
                )


def _guarded(contribution: Contribution, *arguments: Any) -> Iterator[Check]:
    """What an adapter reports; its own failure is one more check, and the others go on."""
    try:
        for check in contribution.load()(*arguments):
            if not isinstance(check, Check):
                raise TypeError(
                    f"it reports {type(check).__name__} where flagos.doctor.Check belongs"
                )
            yield check
    # Others wrote it: importing and running it may raise anything.
    except Exception as error:
        distribution = contribution.distribution
        yield fail(
            _name(contribution),
            f"{contribution.entry.value} of {distribution} cannot be asked: {described(error)}",
            f"pip install --force-reinstall --no-deps {distribution}",
        )


def _name(contribution: Contribution) -> str:
    """Of the check that tells that an adapter cannot be asked."""
    return f"adapter {contribution.name}"

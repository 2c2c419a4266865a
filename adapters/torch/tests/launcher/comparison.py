"""The same call on both paths: the driver's arguments, the result and the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch_fl.launcher as launcher
from adapters.torch.tests.launcher import simulated


@dataclass
class Outcome:
    """The launches of a call, its result or its error, and how many launches were native."""

    launches: list[str]
    result: Any
    raised: tuple[type, str] | None
    native: int


def outcome(call: Callable[[], Any]) -> Outcome:
    """Make the call once."""
    before = launcher.statistics()["native"]
    result, raised = None, None
    with simulated.library().launches() as launches:
        try:
            result = call()
        except Exception as error:
            raised = (type(error), str(error))
    return Outcome(launches, result, raised, launcher.statistics()["native"] - before)


def original(call: Callable[[], Any]) -> Outcome:
    """Make the call once, without the launcher."""
    launcher.uninstall()
    try:
        return outcome(call)
    finally:
        launcher.install()


def compare(call: Callable[[], Any], native: bool = True) -> Outcome:
    """Check that the fifth call of its kind does what Triton does, natively or on the original path."""
    expected = original(call)
    for _ in range(4):
        again = outcome(call)
    assert again.launches == expected.launches
    assert again.raised == expected.raised
    assert again.result is expected.result or again.result == expected.result
    # A launch of no programs is one too.
    assert again.native == max(len(expected.launches), 1) * native
    return again

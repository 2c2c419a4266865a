"""Back ends of Triton's that need more than Triton brings: the wheel of a vendor contributes what completes them.

The entry point of the group `torch_fl.triton` with the back end's name gives a `BackEnd`. It is looked up where the
vendor's library serves the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Protocol, cast

from torch_fl.native.description import description

GROUP = "torch_fl.triton"
WHEELS = {"ascend": "flagos-ascend"}
"""Back ends that cannot be used without a contribution, each with the wheel that has it."""


class BackEnd(Protocol):
    """What completes a back end."""

    @property
    def completions(self) -> Mapping[str, str]:
        """As `Native.completions`."""

    def install(self) -> None:
        """Called when the device is registered."""


class Missing:
    """The back end of a wheel that is not installed: `register` says so when Triton is imported."""

    completions: Mapping[str, str] = {"triton.runtime.driver": __name__}

    def install(self) -> None:
        """Nothing: programs without Triton need no back end."""


@cache
def back_end(name: str | None) -> BackEnd | None:
    """What completes the back end of this name; None where it needs nothing."""
    if name is None:
        return None
    from flagos.adapters import contributions  # most vendors have no such back end

    for contribution in contributions(GROUP):
        if contribution.name == name:
            return cast(BackEnd, contribution.load()())
    return Missing() if name in WHEELS else None


def register() -> None:
    """Called when Triton is imported without the wheel. Raises ImportError, which names the wheel."""
    name = description()["triton_backend"] or ""
    raise ImportError(
        f"Triton's back end {name!r} needs the wheel {WHEELS[name]}, which is not installed: "
        f"pip install {WHEELS[name]}"
    )

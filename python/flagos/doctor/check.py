"""The result of one check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    """The outcome of a check. The members are in the order from good to bad."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One fact about the installation. A status other than OK requires a ``fix``."""

    name: str
    status: Status
    detail: str
    fix: str | None = None
    #: The facts behind ``detail``, for programs.
    data: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status is not Status.OK and not self.fix:
            raise ValueError(f"the check {self.name!r} found a problem but offers no fix")

    def as_dict(self) -> dict[str, Any]:
        """The check as plain data, for ``--json``."""
        return {
            "name": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "fix": self.fix,
            "data": self.data,
        }


def ok(name: str, detail: str, **data: Any) -> Check:
    """A check that found no problem."""
    return Check(name, Status.OK, detail, None, data)


def warn(name: str, detail: str, fix: str, **data: Any) -> Check:
    """A check of something that works worse than it could, or may fail later."""
    return Check(name, Status.WARN, detail, fix, data)


def fail(name: str, detail: str, fix: str, **data: Any) -> Check:
    """A check of something that does not work."""
    return Check(name, Status.FAIL, detail, fix, data)


def worst(checks: Sequence[Check]) -> Status:
    """The worst status of ``checks``; OK without any."""
    order = list(Status)
    return max((check.status for check in checks), key=order.index, default=Status.OK)

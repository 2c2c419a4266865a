"""The result of one check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    """How a check ended, the worst last."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One fact about the installation. Anything but OK says how to fix it."""

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
        """For ``--json``."""
        return {
            "name": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "fix": self.fix,
            "data": self.data,
        }


def ok(name: str, detail: str, **data: Any) -> Check:
    """Nothing wrong."""
    return Check(name, Status.OK, detail, None, data)


def warn(name: str, detail: str, fix: str, **data: Any) -> Check:
    """Works, but not as well as it could, or only until something else happens."""
    return Check(name, Status.WARN, detail, fix, data)


def fail(name: str, detail: str, fix: str, **data: Any) -> Check:
    """Does not work."""
    return Check(name, Status.FAIL, detail, fix, data)


def worst(checks: Sequence[Check]) -> Status:
    """The status of them together."""
    order = list(Status)
    return max((check.status for check in checks), key=order.index, default=Status.OK)

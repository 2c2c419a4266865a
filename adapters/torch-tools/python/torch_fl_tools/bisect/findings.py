"""Findings of a search, which the command and the processes of the program exchange in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


def present(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that have a value, for JSON."""
    return {name: each for name, each in asdict(value).items() if each is not None}


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `kind` is ok, status, signal, timeout, differs, nan or stopped."""

    kind: str
    detail: str = ""

    @property
    def fails(self) -> bool:
        """Whether the run is a failure."""
        return self.kind != "ok"

    def __str__(self) -> str:
        return {"ok": "passes", "stopped": "stopped"}.get(self.kind) or f"fails: {self.detail}"

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """How far two tensors are apart; without numbers where their shapes or types differ."""

    differs: bool  # beyond the tolerances
    excess: float  # the largest difference, in units of what is tolerated
    reason: str  # in words; empty where nothing differs
    of: str | None = None  # which result or argument of a call
    shape: list[int] | None = None
    dtype: str | None = None
    elements: int | None = None
    beyond: int | None = None  # elements beyond the tolerances
    max_abs: float | None = None
    max_rel: float | None = None
    at: list[int] | None = None  # the place of `max_abs`
    nan_expected: int | None = None
    nan: int | None = None
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class Call:
    """One call that the processes watched, or why there is none.

    `kind` is differs, raised, crashed, rounding, replayed or none; the last two have `said` alone, or what is known.
    """

    kind: str
    message: str | None = None
    op: str | None = None
    call: int | None = None  # its number among the calls of the operator
    number: int | None = None  # its number among all watched calls
    impl: str | None = None
    arguments: list[str] | None = None
    stack: list[str] | None = None
    gradient_of: str | None = None
    forward_stack: list[str] | None = None
    differences: list[Difference] | None = None
    raised: str | None = None
    not_saved: str | None = None  # why its arguments could not be kept
    ended: bool | None = None
    repro: str | None = None
    repro_status: int | None = None  # with a repro: None if it did not end in time

    @classmethod
    def read(cls, fields: Mapping[str, Any], kind: str = "none") -> Call:
        """The call that a process wrote."""
        differences = fields.get("differences")
        if differences is not None:
            differences = [Difference(**one) for one in differences]
        return cls(**{"kind": kind, **fields, "differences": differences})

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        fields = present(self)
        if self.differences is not None:
            fields["differences"] = [present(one) for one in self.differences]
        if self.repro is not None:
            fields["repro_status"] = self.repro_status
        return fields


@dataclass(frozen=True)
class Suspect:
    """An operator of a cause, with the implementation that its route gave it."""

    op: str
    impl: str | None
    backend: str | None


@dataclass
class Cause:
    """A set of operators that makes the program fail, all of them together."""

    operators: list[Suspect]
    outcome: Outcome
    call: Call | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "operators": [asdict(one) for one in self.operators],
            "outcome": self.outcome.as_dict(),
            **({} if self.call is None else {"call": self.call.as_dict()}),
        }


@dataclass
class Result:
    """The result: `causes` are sets of operators, each of which fails by itself."""

    verdict: str  # found, passes, native fails, not reproducible, not searched, too many runs
    message: str
    causes: list[Cause] = field(default_factory=list)
    operators: int = 0
    runs: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "causes": [cause.as_dict() for cause in self.causes]}

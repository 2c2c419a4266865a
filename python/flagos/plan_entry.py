"""The decision about one operator, as :func:`flagos.explain` and :func:`flagos.plan` give it."""

from __future__ import annotations

from typing import TypedDict


class Condition(TypedDict):
    """A property that a call's arguments must have for an implementation to serve it."""

    name: str


class Candidate(TypedDict):
    """An implementation that the plan considered."""

    impl_id: str
    kind: str
    vendor: str | None
    backend: str | None
    priority: int
    chosen: bool
    #: Why it was not chosen.
    reason: str | None
    only: list[Condition]


class PlanEntry(TypedDict):
    """The decision about one operator."""

    op: str
    #: ``native``, ``foreign``, ``blocked`` or ``cpu_fallback``.
    route: str
    #: Whether torch decomposes it into other operators.
    composite: bool
    #: The ``impl_id`` of the implementation that serves it.
    winner: str | None
    backend: str | None
    selector: str
    selectors: list[str]
    explicit: bool
    #: The setting that decided.
    decided_by: str
    #: The winner first.
    candidates: list[Candidate]


class Plan(TypedDict):
    """The whole plan."""

    #: Every operator by name, sorted, except those that torch decomposes.
    ops: dict[str, PlanEntry]
    #: Routes for namespaces without registrations, as ``(operator, source)``.
    unmatched: list[tuple[str, str]]


class Fallback(TypedDict):
    """The fallbacks of one operator."""

    op: str
    count: int
    #: The reason of the first one.
    reason: str

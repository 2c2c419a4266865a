"""From raw results to what passed, what was expected to fail, and what is stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .databases import Case
from .expectations import Entry, Expectations

CRASH_KINDS = frozenset({"crash", "timeout"})


@dataclass(frozen=True)
class Failure:
    """One failing variant of a case with its first failing sample."""

    case: Case
    variant: str
    sample: int | None
    inputs: str
    mismatches: tuple[tuple[str, str], ...]
    reason: str | None  # why it was expected; None if it was not

    @property
    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.mismatches}


@dataclass
class Summary:
    """The outcome of a run."""

    cases: int = 0
    samples: int = 0
    reference_raised: int = 0
    ungenerated: list[str] = field(default_factory=list)
    total: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    float32_total: Counter[str] = field(default_factory=Counter)
    float32_passed: Counter[str] = field(default_factory=Counter)
    variants: dict[str, Counter[str]] = field(default_factory=dict)
    unexpected: list[Failure] = field(default_factory=list)
    expected: list[Failure] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)  # of operators on the device
    fallbacks: Counter[str] = field(default_factory=Counter)

    @property
    def crashes(self) -> list[Failure]:
        return [f for f in (*self.unexpected, *self.expected) if f.kinds & CRASH_KINDS]

    @property
    def ok(self) -> bool:
        return not self.unexpected and not self.stale


def summarize(
    results: Iterable[dict[str, Any]], expectations: Expectations, *, complete: bool
) -> Summary:
    """Judges results against the expectations.

    ``complete`` says that every sample of the checked variants was run, so that an expected failure
    that did not occur is known to be fixed.
    """
    summary = Summary()
    failing: set[tuple[Case, str]] = set()
    checked: set[tuple[Case, str]] = set()
    for result in results:
        case = Case(result["database"], result["name"], result["dtype"])
        crashed = False
        seen: set[str] = set()
        for raw in result["failures"]:
            variant = raw["variant"]
            failing.add((case, variant))
            if variant in seen:
                continue
            seen.add(variant)
            mismatches = tuple((m["kind"], m["message"]) for m in raw["mismatches"])
            reason = expectations.reason(case, variant)
            failure = Failure(case, variant, raw["sample"], raw["inputs"], mismatches, reason)
            crashed |= bool(failure.kinds & CRASH_KINDS)
            (summary.unexpected if reason is None else summary.expected).append(failure)
        _count(summary, case, result, passed=not seen)
        if not crashed:
            checked |= {(case, variant) for variant in result["variants"]}
    if complete:
        summary.stale = _stale(expectations.expected, checked, failing)
    return summary


def _count(summary: Summary, case: Case, result: dict[str, Any], *, passed: bool) -> None:
    summary.cases += 1
    summary.total[case.database] += 1
    summary.passed[case.database] += passed
    for op, (calls, fallbacks) in result.get("counters", {}).items():
        summary.calls[op] += calls
        summary.fallbacks[op] += fallbacks
    if case.dtype == "float32":
        summary.float32_total[case.database] += 1
        summary.float32_passed[case.database] += passed
    for variant, counts in result["variants"].items():
        summary.samples += counts["samples"]
        summary.reference_raised += counts["reference_raised"]
        if counts["ungenerated"]:
            summary.ungenerated.append(f"{case} {variant}: {counts.get('why', '')}")
        totals = summary.variants.setdefault(f"{case.database} {variant}", Counter())
        totals["cases"] += 1
        totals["passed"] += counts["failed"] == 0
        totals.update({key: counts[key] for key in ("samples", "failed", "reference_raised")})


def _stale(
    entries: Iterable[Entry],
    checked: set[tuple[Case, str]],
    failing: set[tuple[Case, str]],
) -> list[str]:
    stale = []
    for entry in entries:
        if entry.intermittent:
            continue
        covered = sorted(pair for pair in checked if entry.covers(*pair))
        passing = [pair for pair in covered if pair not in failing]
        if not passing:
            continue
        if len(passing) == len(covered):
            stale.append(f"{entry}: passes now ({entry.reason})")
        else:
            named = ", ".join(f"{case} {variant}" for case, variant in passing[:8])
            stale.append(f"{entry}: narrow it, these pass now: {named}")
    return stale

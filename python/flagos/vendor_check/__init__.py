"""The checklist for a vendor: what ``flagos vendor check`` runs.

Whatever runs code of the vendor does so in a process of its own, so that a crash, a hang or an exit is a finding like
any other, and the steps after it still run.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flagos import _core
from flagos.processes.reports import Outcome, run_module
from flagos.vendor_check.step import DECLARATIONS, OPENING, OPERATORS, TAKING, Finding, Status, Step

__all__ = ["Finding", "Status", "Step", "Target", "checklist", "steps"]

WORKER = "flagos.vendor_check.worker"


@dataclass(frozen=True)
class Target:
    """The subject of a check."""

    #: As the user names it.
    name: str
    #: The library, or its manifest. ``None``: the vendor is built into flagos.
    file: Path | None

    @property
    def argument(self) -> str:
        """The target for the processes of the checklist."""
        return self.name if self.file is None else str(self.file.absolute())

    def lacks(self, step: Step) -> str | None:
        """The reason why there is nothing for a step to look at, if so."""
        if self.file is None and step in (*TAKING, DECLARATIONS, OPERATORS):
            return "the vendor is built into flagos"
        if step == TAKING[0] and self.file is not None and self.file.suffix != ".toml":
            return "a library is checked alone: name its manifest instead to check both"
        return None


def steps() -> list[Step]:
    """Every step, in order."""
    return [*TAKING, *OPENING, DECLARATIONS, *_conformance(), OPERATORS]


def _conformance() -> list[Step]:
    """The checks of the conformance suite."""
    return [
        Step(check["name"], check["proves"], "correct the function", tuple(check["functions"]))
        for check in _core.conformance_checks()
    ]


def checklist(
    target: Target,
    only: Sequence[Step],
    *,
    timeout: float,
    begins: Callable[[Step], None] = lambda step: None,
) -> Iterator[Finding]:
    """Runs the steps of ``only``, in order, each process for at most ``timeout`` seconds.

    ``begins`` is called before each wait, with the step that is waited for. A failed step that others need is a finding
    although it is not in ``only``.
    """
    chosen = [step for step in steps() if step in only]
    if not chosen:
        return
    begins(chosen[0])
    outcome = _run("take", target, timeout=timeout)
    taken = {each.step: each for each in _taken(target, outcome)}
    declared = _declared(outcome)
    broken = next((each for each in taken.values() if each.status is Status.FAIL), None)
    if broken is not None and broken.step not in chosen and _is_needed(broken.step, chosen):
        yield broken
    for step in chosen:
        needed = TAKING if step == OPERATORS else (*TAKING, *OPENING)
        failed = next((taken[each] for each in needed if taken[each].status is Status.FAIL), None)
        reason = target.lacks(step)
        if step == DECLARATIONS and failed is None and not declared:
            if len(chosen) > 1:
                continue  # no step of most vendors'
            reason = reason or "the library takes nothing for granted of a library beneath it"
        if step in taken:
            yield taken[step]
        elif reason is not None:
            yield Finding(step, Status.SKIP, reason)
        elif failed is not None:
            yield _not_reached(step, failed)
        else:
            begins(step)
            if step == DECLARATIONS:
                yield _declarations(step, target, timeout, declared)
            else:
                run = _operators if step == OPERATORS else _check
                yield run(step, target, timeout)


def _run(part: str, target: Target, *arguments: str, timeout: float) -> Outcome:
    return run_module(WORKER, [part, target.argument, *arguments], timeout=timeout)


def _taken(target: Target, outcome: Outcome) -> Iterator[Finding]:
    """The findings of the steps that one process makes, one after the other until one fails."""
    failed: Finding | None = None
    for step in (*TAKING, *OPENING):
        report = outcome.report(step.name)
        reason = target.lacks(step)
        if reason is not None:
            yield Finding(step, Status.SKIP, reason)
        elif failed is not None:
            yield _not_reached(step, failed)
        elif report is not None and (step != OPENING[-1] or _is_whole(outcome)):
            yield Finding(step, Status.PASS, report["detail"])
        else:
            failed = _failure(step, target, "take", outcome)
            yield failed


def _is_needed(broken: Step, chosen: Sequence[Step]) -> bool:
    """Whether one of these steps cannot be reached because of another one."""
    order = steps()
    later = order[order.index(broken) + 1 :]
    return any(step in later and (step != OPERATORS or broken in TAKING) for step in chosen)


def _not_reached(step: Step, failed: Finding) -> Finding:
    return Finding(step, Status.SKIP, f"not reached: {failed.step.name} failed")


def _is_whole(outcome: Outcome) -> bool:
    """Whether the process came to its end, and ended well."""
    return outcome.failure is None and outcome.report("end") is not None


def _failure(step: Step, target: Target, part: str, outcome: Outcome) -> Finding:
    """The finding about a process that did not do its part."""
    error = outcome.report("error")
    if error is not None:
        return Finding(step, Status.FAIL, error["message"], error["hint"] or step.remedy)
    how = outcome.failure or "the library ended the process, with status 0"
    when = " after the step, when the vendor was closed" if outcome.report(step.name) else ""
    arguments = [part, target.argument, *([step.name] if part == "check" else [])]
    command = shlex.join([sys.executable, "-m", WORKER, *arguments])
    return Finding(step, Status.FAIL, f"{how}{when}", f"look where: gdb -ex run --args {command}")


def _check(step: Step, target: Target, timeout: float) -> Finding:
    outcome = _run("check", target, step.name, timeout=timeout)
    report = outcome.report("finding")
    if report is None or not _is_whole(outcome):
        return _failure(step, target, "check", outcome)
    if report["text"] is None:
        return Finding(step, Status.PASS, step.proves)
    fix = f"it has to be true that {step.proves}: see {', '.join(step.functions)}"
    return Finding(step, Status.FAIL, report["text"], fix)


def _declared(outcome: Outcome) -> dict[str, str]:
    """The declarations of the library: each name with its grade."""
    report = outcome.report("declared")
    return {} if report is None else report["names"]


def _declarations(
    step: Step, target: Target, timeout: float, declared: Mapping[str, str]
) -> Finding:
    outcome = _run("declarations", target, timeout=timeout)
    shown: list[str] = []
    wrong: list[str] = []
    for name, grade in declared.items():
        tried = outcome.report(f"tried {name}")
        if tried is None and outcome.report(f"trying {name}") is not None:
            error = outcome.report("error")
            wrong.append(f"{name} ({grade}): {error['message'] if error else outcome.failure}")
        elif tried is not None:
            (shown if tried["right"] else wrong).append(f"{name} ({grade}): {tried['shown']}")
    if wrong:
        return Finding(step, Status.FAIL, "; ".join(wrong), step.remedy)
    if not _is_whole(outcome):
        return _failure(step, target, "declarations", outcome)
    return Finding(step, Status.PASS, "; ".join(shown))


def _operators(step: Step, target: Target, timeout: float) -> Finding:
    outcome = _run("operators", target, timeout=timeout)
    known, report = outcome.report("known"), outcome.report("operators")
    if known is None or not known["count"]:
        # The reasons are not the vendor's: its library was not loaded yet.
        missing = known["missing"] if known else {"the adapters": outcome.failure}
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        return Finding(step, Status.SKIP, f"the operators of torch are not known here: {reasons}")
    if report is None or not _is_whole(outcome):
        return _failure(step, target, "operators", outcome)
    if report["found"] is None:
        return Finding(step, Status.SKIP, "the library has no kernels")
    names = ", ".join(report["found"]) or "none"
    detail = f"kernels for {len(report['found'])} of the {known['count']:,} operators known here: {names}"
    return Finding(step, Status.PASS, detail)

"""Compares FlagGems' kernel of one overload with the native one, case by case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from flagos.processes.pool import Report
from torch_fl import python_kernels
from torch_fl.flaggems import envelope, implementations
from torch_fl.flaggems.table_file import FAILED, STRICT, Verdict
from torch_fl_tools.flaggems import cases, samples
from torch_fl_tools.flaggems.running import BY_ITSELF, Case, Loss, judge, loses_by_itself
from torch_fl_tools.flaggems.tally import Checked, Tally


def check(
    overload: str,
    where: list[tuple[str, str]],
    samples: int | None = None,
    seconds: float = float("inf"),
    report: Report = lambda step, partial: None,
    losses: Sequence[Loss] = (),
) -> Checked:
    """The verdict on one overload, with the first case that prevents STRICT.

    Of each entry, form and type it takes as many samples as `cases.shares` says.
    `verdict`; `plain`, the verdict on the database's own samples alone; `cases`, how many were compared;
    `replayed`, how many of them ended in replays; `not_replayed`, reasons against; `first`. Calls outside
    `envelope.ORDINARY` are served natively, as in use. `declined` is how many cases have calls that FlagGems does
    not take, and `declines` the first, with what it says. Where further conditions on the arguments tell what is
    right from what is wrong, `verdict` is STRICT, `only` are these conditions, `inside` is how many cases were
    right and wholly within, and `outside` how many were wrong. Where it FAILED, `within_all` is the first case that
    did within all conditions, when that is not `first`. `loss` is the case in which the device was lost, after
    which nothing is compared. Such cases are not run again when they are known as `losses`: what the native kernel
    surely lost is in `left_out`, with the variations that are made likewise of the entry's other samples, and what
    it may have lost is run by itself first; what FlagGems lost is FAILED, and calls outside the conditions that it
    broke are declined from the start. After `seconds` it stops: what was not reached is in `not_reached`, and a
    verdict that would be STRICT is so only if every entry, form and type was compared at least once, or FlagGems
    took none of its first cases, which is why they take turns. A case that finds no memory counts for nothing, and
    `short` says that there was one. `report` is called with the name of each step before
    it (making a sample, the native run, FlagGems' run) and with what was found so far.
    """
    op_name = f"aten::{overload}"
    random = torch.Tag.nondeterministic_seeded in python_kernels.require_operator(op_name).tags
    began = time.monotonic()
    conditions = _telling(overload)
    groups = cases.groups(where)
    shares = cases.shares(overload, where, samples)
    known = {loss.case: loss for loss in losses if not loss.native}
    left_out = {cases.kind(loss.case) for loss in losses if loss.native and loss.sure}
    guards = frozenset[str]().union(*(loss.broken for loss in losses))
    tally = Tally(conditions, len(groups), losses)

    def step(name: str) -> None:
        report(name, tally.found)

    for suspect in losses:
        if suspect.native and not suspect.sure:
            step(f"{BY_ITSELF}{suspect.case}")
            if loses_by_itself(op_name, suspect.case, groups, shares):
                tally.found["loss"] = replace(suspect, sure=True)
                return tally.found
    _limit(overload, guards)
    try:
        turns = _in_turns(groups, shares, lambda group: step(f"making a sample of {group}"))
        for index, labelled in turns:
            if labelled is None:
                tally.ended(index)
                continue
            if time.monotonic() - began > seconds:
                tally.no_time()
                break
            label, sample = labelled
            case = Case(f"{groups[index]}, {label}", groups[index].call, sample)
            loss = known.get(case.name)
            if loss is not None:
                case.verdict, case.why = FAILED, loss.why
            elif cases.kind(case.name) in left_out:
                tally.leave_out(index, case)
                continue
            else:
                judge(case, op_name, random, tally.found, step)
            tally.add(index, case)
            if case.lost or tally.settled:
                break
        if tally.can_have_conditions:
            only = _envelope(overload, conditions, guards, tally.right, tally.wrong, step, seconds)
            if only:
                tally.strict_within(only)
    finally:
        implementations.limit(overload, ())
    return tally.result()


def _limit(overload: str, only: frozenset[str]) -> None:
    """Route the overload as it would be routed in use if it were STRICT within `only`."""
    implementations.limit(overload, only | {envelope.ORDINARY})


def _telling(overload: str) -> frozenset[str]:
    """The conditions beside ORDINARY that samples of an overload can keep or break.

    Those of the database are hardly ever aligned: what is wrong of other causes would seem right within. Products
    have samples of our own for it.
    """
    beside = frozenset(envelope.CONDITIONS) - {envelope.ORDINARY}
    return beside if overload.partition(".")[0] in samples.PRODUCTS else beside - {envelope.ALIGNED}


def _envelope(
    overload: str,
    conditions: frozenset[str],
    guards: frozenset[str],
    right: list[Case],
    wrong: list[Case],
    step: Callable[[str], None],
    seconds: float,
) -> frozenset[str] | None:
    """The simplest conditions within which every case is right, and some is left; None without any, or time.

    `guards` are among them: without these, cases were not run.
    Each case that was wrong is run again while what is outside is declined: calls within it may still be wrong.
    """
    began = time.monotonic()
    unrecorded: Verdict = {"verdict": STRICT, "replayed": 0}
    try:
        for only in envelope.condition_sets(conditions):
            if not guards <= only or not any(case.within(only) for case in right):
                continue  # the device would be lost again, or no case would be left
            if any(case.within(only) for case in wrong):
                continue
            _limit(overload, only)
            for case in wrong:
                if time.monotonic() - began > seconds:
                    return None
                again = Case(case.name, case.call, case.sample)
                judge(again, f"aten::{overload}", False, unrecorded, step)
                if again.lost or again.short:
                    return None
                if again.verdict not in (STRICT, None):
                    # Move it to the front: the next set of conditions tries it first.
                    wrong.sort(key=lambda one: one is not case)
                    break
            else:
                return only
        return None
    finally:
        implementations.limit(overload, ())


def _in_turns(
    groups: list[cases.Group], shares: dict[str, int], making: Callable[[cases.Group], None]
) -> Iterator[tuple[int, tuple[str, Any] | None]]:
    """The first case of every group, then the second of each, and so on; None for a group after its last.

    `making` is called before each is made.
    """
    running = {index: group.samples(shares[group.entry]) for index, group in enumerate(groups)}
    while running:
        for index, group_samples in list(running.items()):
            making(groups[index])
            try:
                case = next(group_samples, None)
            except Exception:  # functions of the database fail for some dtypes
                case = None
            if case is None:
                del running[index]
            yield index, case

"""Compares FlagGems' kernel of one overload with the native one, case by case."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import flagos
from torch_fl import python_kernels
from torch_fl.aten import routing
from torch_fl.flaggems import envelope, implementations
from torch_fl.flaggems.tables import FAILED, STRICT, UNTESTED
from torch_fl.native import native
from torch_fl.python_kernels import replay
from torch_fl_tools.flaggems import cases, samples
from torch_fl_tools.flaggems.comparison import compare, same_bits, worse
from torch_fl_tools.flaggems.samples import tensors

# The names of the steps of a case.
BY_FLAGGEMS = "FlagGems' run of "
BY_NATIVE = "the native run of "
BY_ITSELF = "the native run by itself of "  # in a process in which FlagGems has not run
_CALLS = 5  # calls with the same arguments: from Python, two recorded, then replayed


@dataclass(frozen=True)
class Loss:
    """A case in which the native kernel or FlagGems' made a process lose the device, with the error's words.

    The native one may have lost the whole process, or have come to no end. That it did so may be of what FlagGems'
    runs before it did, or of a busy machine, unless it does so again by itself in another process: then it is `sure`.
    """

    case: str
    native: bool
    why: str
    broken: frozenset[str]  # the conditions that calls of FlagGems broke
    sure: bool = False


@dataclass
class _Case:
    """A case and its outcome."""

    name: str
    call: Callable[[Any], Any]
    sample: Any
    verdict: str | None = None  # None: FlagGems did not run
    why: str = ""
    lost: bool = False  # whether the device was lost
    short: bool = False  # whether there was no memory for it, which says nothing of the kernel
    # The conditions that held, for each call from Python.
    calls: list[envelope.Holding] = field(default_factory=list)

    def within(self, only: frozenset[str]) -> bool:
        """Whether the conditions held for all recorded calls."""
        return bool(self.calls) and all(only <= held for held in self.calls)

    def broken(self, conditions: frozenset[str]) -> frozenset[str]:
        """The conditions that some call broke."""
        return frozenset[str]().union(*(conditions - held for held in self.calls))


def check(
    overload: str,
    where: list[tuple[str, str]],
    samples: int | None = None,
    seconds: float = float("inf"),
    told: Callable[[str, dict[str, Any]], None] | None = None,
    losses: Sequence[Loss] = (),
) -> dict[str, Any]:
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
    `short` says that there was one. `told` is called with the name of each step before
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
    tally = _Tally(conditions, len(groups), losses)

    def step(name: str) -> None:
        if told is not None:
            told(name, tally.found)

    for suspect in losses:
        if suspect.native and not suspect.sure:
            step(f"{BY_ITSELF}{suspect.case}")
            if _loses_by_itself(op_name, suspect.case, groups, shares):
                return tally.found | {"loss": replace(suspect, sure=True)}
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
            case = _Case(f"{groups[index]}, {label}", groups[index].call, sample)
            loss = known.get(case.name)
            if loss is not None:
                case.verdict, case.why = FAILED, loss.why
            elif cases.kind(case.name) in left_out:
                tally.leave_out(index, case)
                continue
            else:
                _judge(case, op_name, random, tally.found, step)
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


class _Tally:
    """Collects the outcomes of the cases of an overload. `found` is the result that `check` returns."""

    def __init__(self, conditions: frozenset[str], groups: int, losses: Sequence[Loss]) -> None:
        self.found: dict[str, Any] = {"verdict": UNTESTED, "plain": UNTESTED}
        self.found |= {"cases": 0, "replayed": 0, "first": None}
        self.right: list[_Case] = []
        self.wrong: list[_Case] = []
        self.waiting = set(range(groups))  # groups without a verdict yet
        self._groups = groups
        self._conditions = conditions
        self._declined: Counter[int] = Counter()  # declined cases by group
        self._skipped = ""
        self._inherent: _Case | None = None  # a case that FAILED within all conditions
        self._complete = True
        self._left: set[int] = set()  # groups with cases that were left out
        self._uncompared = 0  # groups among them of which no case was compared
        self._short: set[int] = set()  # groups with cases that found no memory
        self._starved = 0  # groups among them of which no case was compared
        self._to_come = {loss.case for loss in losses if not loss.native}
        for loss in losses:
            if not loss.native:  # counts even if there is no time for the case
                self.found |= {"verdict": FAILED, "first": f"{loss.case}: {loss.why}"}
                if cases.plain(loss.case):
                    self.found["plain"] = FAILED

    def leave_out(self, group: int, case: _Case) -> None:
        """Count a case that the native kernel does not survive."""
        self._left.add(group)
        self.found.setdefault("left_out", []).append(case.name)

    def ended(self, group: int) -> None:
        """Note that a group has no other case."""
        self._uncompared += group in self._left & self.waiting
        self._starved += group in self._short & self.waiting
        self.waiting.discard(group)

    def add(self, group: int, case: _Case) -> None:
        """Count a case that has run, or whose outcome is known."""
        if case.short:
            self._short.add(group)
            self.found["short"] = True
            return
        self._to_come.discard(case.name)
        if case.verdict is None:
            self._skipped = self._skipped or f"{case.name}: {case.why}"
            self._declined[group] += 1
            if self._declined[group] == cases.FIRST:
                self.waiting.discard(group)
        else:
            self.waiting.discard(group)
            self._compared(case, case.verdict)
        if case.lost:
            broken = case.broken(self._conditions)
            self.found["loss"] = Loss(case.name, case.verdict is None, case.why, broken)
            self._cut_short()

    def _compared(self, case: _Case, verdict: str) -> None:
        self.found["cases"] += 1
        if worse(verdict, self.found["verdict"]):
            self.found["verdict"] = verdict
            if verdict != STRICT:
                self.found["first"] = f"{case.name}: {case.why}"
        if cases.plain(case.name) and worse(verdict, self.found["plain"]):
            self.found["plain"] = verdict
        if verdict != STRICT:
            self.wrong.append(case)
        elif case.calls:
            case.sample = None  # frees its memory
            self.right.append(case)
        if verdict == FAILED and case.within(self._conditions):
            self._inherent = self._inherent or case

    def no_time(self) -> None:
        """Note that not all cases were reached."""
        left = self.found["not_reached"] = len(self.waiting)
        if self._to_come:
            self._complete = False
        if left:
            self._cut_short()
            if self.found["verdict"] in (STRICT, UNTESTED):
                self.found["verdict"] = UNTESTED
                self.found["first"] = (
                    f"there was no time for {left} of {self._groups} forms and types"
                )

    def _cut_short(self) -> None:
        self._complete = False
        if self.found["plain"] != FAILED:
            self.found["plain"] = UNTESTED

    @property
    def settled(self) -> bool:
        """Whether no further case can change the verdict."""
        return self._inherent is not None and self.found["plain"] == FAILED

    @property
    def can_have_conditions(self) -> bool:
        """Whether conditions may exist within which every case is right."""
        complete = self._complete and not self._starved
        return complete and self._inherent is None and bool(self.wrong and self.right)

    def strict_within(self, only: frozenset[str]) -> None:
        """Note the conditions within which every case is right."""
        inside = sum(case.within(only) for case in self.right)
        self.found |= {"verdict": STRICT, "only": envelope.ordered(only)}
        self.found |= {"inside": inside, "outside": len(self.wrong)}

    def result(self) -> dict[str, Any]:
        """The result of `check`."""
        found = self.found
        if self._uncompared and found["verdict"] == STRICT:
            ends = "the native kernel ends the process in every case of"
            found |= {"verdict": UNTESTED, "plain": UNTESTED}
            found["first"] = f"{ends} {self._uncompared} forms and types"
        if self._starved and found["verdict"] in (STRICT, UNTESTED):
            found |= {"verdict": UNTESTED, "plain": UNTESTED, "not_reached": self._starved}
            found["first"] = (
                f"there was no memory for {self._starved} of {self._groups} forms and types"
            )
        if self._inherent is not None:
            inherent = f"{self._inherent.name}: {self._inherent.why}"
            if found["first"] != inherent:
                found["within_all"] = inherent
        if not found["cases"] and found["first"] is None:
            why = f"; {self._skipped}" if self._skipped else ""
            found["first"] = f"no case reached it{why}"
        return found


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
    right: list[_Case],
    wrong: list[_Case],
    step: Callable[[str], None],
    seconds: float,
) -> frozenset[str] | None:
    """The simplest conditions within which every case is right, and some is left; None without any, or time.

    `guards` are among them: without these, cases were not run.
    Each case that was wrong is run again while what is outside is declined: calls within it may still be wrong.
    """
    began = time.monotonic()
    unrecorded: dict[str, Any] = {"replayed": 0}
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
                again = _Case(case.name, case.call, case.sample)
                _judge(again, f"aten::{overload}", False, unrecorded, step)
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


def _judge(
    case: _Case, op_name: str, random: bool, found: dict[str, Any], step: Callable[[str], None]
) -> None:
    """Run a case with the native kernel and with FlagGems', and fill in its outcome."""
    try:
        _run_both(case, op_name, random, found, step)
    except Exception as error:
        if not implementations.without_memory(error):
            raise
        case.verdict, case.why, case.short = None, "there was no memory for it", True


def _run_both(
    case: _Case, op_name: str, random: bool, found: dict[str, Any], step: Callable[[str], None]
) -> None:
    step(f"{BY_NATIVE}{case.name}")
    with flagos.route({op_name: "vendor"}):
        expected, error = _outcome(case.call, case.sample)
    if error is not None:
        case.why, case.lost = (
            f"the native kernel raised {implementations.said(error)}",
            native().lost(error),
        )
        return
    step(f"{BY_FLAGGEMS}{case.name}")
    function = implementations.function(op_name.removeprefix("aten::"))
    with flagos.route({op_name: implementations.BACKEND}):
        served = _calls(op_name)
        function.told = case.calls.append
        try:
            with _declined_by(function) as declined:
                actual, error = _outcome(case.call, case.sample)
        finally:
            function.told = None
        if declined:
            found["declined"] = found.get("declined", 0) + 1
            found.setdefault("declines", f"{case.name}: {declined[0]}")
        if error is not None:
            case.verdict, case.why, case.lost = (
                FAILED,
                implementations.said(error),
                native().lost(error),
            )
            return
        verdict, why = compare(expected, actual, random)
        if _calls(op_name) == served:
            case.why = "these arguments take another way"
            if declined and verdict == FAILED:  # a declined call must not have written anything
                case.verdict, case.why = FAILED, f"after it was declined: {why}"
            return
        case.verdict, case.why = verdict, why
        if case.verdict != FAILED and not random and replay.enabled():
            difference = _replays_alike(op_name, case, actual, len(declined), step)
            if difference:
                case.verdict, case.why = FAILED, difference
        stats = replay.statistics().get(op_name)
        if stats is not None:
            found["replayed"] += stats.replays > 0
            found["not_replayed"] = sorted({*found.get("not_replayed", []), *stats.reasons})[:3]


@contextmanager
def _declined_by(function: implementations.Function) -> Iterator[list[str]]:
    """Context manager that collects the reasons of calls declined inside it."""
    reasons: list[str] = []
    function.declined = reasons.append
    try:
        yield reasons
    finally:
        function.declined = None


def _outcome(
    call: Callable[[Any], Any], sample: Any
) -> tuple[list[torch.Tensor], Exception | None]:
    """The results of a call and what it wrote to, or the error that it raised; one of memory passes."""
    torch.manual_seed(7)
    try:
        sample = samples.on_flagos(sample)
        result = call(sample)
        torch.accelerator.synchronize()
        return tensors(result) + tensors((sample.input, sample.args, sample.kwargs)), None
    except Exception as error:
        if implementations.without_memory(error):
            raise
        return [], error


def _calls(op: str) -> int:
    counted = routing.counters().get(op, {"calls": 0, "fallbacks": 0})
    return counted["calls"] - counted["fallbacks"]  # declined calls were not served


def _replays_alike(
    op_name: str,
    case: _Case,
    first: list[torch.Tensor],
    declined: int,
    step: Callable[[str], None],
) -> str:
    """The difference between the call from Python and the same calls after it; empty if there is none.

    Each must decline as many calls as the first did, `declined`. Sets whether the device was lost.

    Bit for bit, unless the case does not repeat itself on native kernels either (an operator beside this one may
    add in any order): then within tolerances.
    """
    function = implementations.function(op_name.removeprefix("aten::"))
    for _ in range(_CALLS - 1):
        with _declined_by(function) as said:
            again, error = _outcome(case.call, case.sample)
        if error is not None:
            case.lost = native().lost(error)
            return f"a repeated call raised {implementations.said(error)}"
        if len(said) != declined:
            return f"a repeated call is declined otherwise: {(said or ['not at all'])[0]}"
        if same_bits(first, again):
            continue
        step(f"{BY_NATIVE}{case.name}")
        repeats = _repeats_natively(op_name, case)
        step(f"{BY_FLAGGEMS}{case.name}")
        if repeats or compare(first, again, False)[0] == FAILED:
            return "a repeated call differs from the one before it"
    return ""


def _loses_by_itself(
    op_name: str, name: str, groups: list[cases.Group], shares: dict[str, int]
) -> bool:
    """Whether the native kernel loses the device in the case of that name."""
    for group in groups:
        label = name.removeprefix(f"{group}, ")
        made = group.samples(shares[group.entry]) if label != name else iter(())
        sample = next((sample for known, sample in made if known == label), None)
        if sample is not None:
            with flagos.route({op_name: "vendor"}):
                _, error = _outcome(group.call, sample)
            return error is not None and native().lost(error)
    return False


def _repeats_natively(op_name: str, case: _Case) -> bool:
    """Whether the native kernel gives the same bits each time, in a few calls and by torch's own account."""
    with flagos.route({op_name: "vendor"}):
        if _said_to_differ(case):
            return False
        runs = [_outcome(case.call, case.sample) for _ in range(_CALLS)]
    first = runs[0][0]
    return all(error is None and same_bits(first, made) for made, error in runs)


def _said_to_differ(case: _Case) -> bool:
    """Whether torch warns that the operator has no deterministic form, which a few calls may not show."""
    from torch.testing._internal.common_utils import DeterministicGuard

    with DeterministicGuard(True, warn_only=True), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _outcome(case.call, case.sample)
    return any("does not have a deterministic implementation" in str(one.message) for one in told)

"""Runs one case by the native kernel and by FlagGems', and tells how it came out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

import flagos
from torch_fl.aten import routing
from torch_fl.flaggems import envelope, implementations
from torch_fl.flaggems.table_file import FAILED, Verdict
from torch_fl.native import native
from torch_fl.python_kernels import replay
from torch_fl_tools.flaggems import cases, samples
from torch_fl_tools.flaggems.comparison import compare, same_bits
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
class Case:
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


def judge(
    case: Case, op_name: str, random: bool, found: Verdict, step: Callable[[str], None]
) -> None:
    """Run a case with the native kernel and with FlagGems', and fill in its outcome."""
    try:
        _run_both(case, op_name, random, found, step)
    except Exception as error:
        if not implementations.without_memory(error):
            raise
        case.verdict, case.why, case.short = None, "there was no memory for it", True


def _run_both(
    case: Case, op_name: str, random: bool, found: Verdict, step: Callable[[str], None]
) -> None:
    step(f"{BY_NATIVE}{case.name}")
    with flagos.route({op_name: "vendor"}):
        expected, error = outcome(case.call, case.sample)
    if error is not None:
        case.why, case.lost = (
            f"the native kernel raised {implementations.message(error)}",
            native().lost(error),
        )
        return
    step(f"{BY_FLAGGEMS}{case.name}")
    function = implementations.function(op_name.removeprefix("aten::"))
    with flagos.route({op_name: implementations.BACKEND}):
        served = _calls(op_name)
        function.on_call = case.calls.append
        try:
            with _declined_by(function) as declined:
                actual, error = outcome(case.call, case.sample)
        finally:
            function.on_call = None
        if declined:
            found["declined"] = found.get("declined", 0) + 1
            found.setdefault("declines", f"{case.name}: {declined[0]}")
        if error is not None:
            case.verdict, case.why, case.lost = (
                FAILED,
                implementations.message(error),
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


def outcome(call: Callable[[Any], Any], sample: Any) -> tuple[list[torch.Tensor], Exception | None]:
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
    case: Case,
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
        with _declined_by(function) as declines:
            again, error = outcome(case.call, case.sample)
        if error is not None:
            case.lost = native().lost(error)
            return f"a repeated call raised {implementations.message(error)}"
        if len(declines) != declined:
            return f"a repeated call is declined otherwise: {(declines or ['not at all'])[0]}"
        if same_bits(first, again):
            continue
        step(f"{BY_NATIVE}{case.name}")
        repeats = _repeats_natively(op_name, case)
        step(f"{BY_FLAGGEMS}{case.name}")
        if repeats or compare(first, again, False)[0] == FAILED:
            return "a repeated call differs from the one before it"
    return ""


def loses_by_itself(
    op_name: str, name: str, groups: list[cases.Group], shares: dict[str, int]
) -> bool:
    """Whether the native kernel loses the device in the case of that name."""
    for group in groups:
        label = name.removeprefix(f"{group}, ")
        made = group.samples(shares[group.entry]) if label != name else iter(())
        sample = next((sample for known, sample in made if known == label), None)
        if sample is not None:
            with flagos.route({op_name: "vendor"}):
                _, error = outcome(group.call, sample)
            return error is not None and native().lost(error)
    return False


def _repeats_natively(op_name: str, case: Case) -> bool:
    """Whether the native kernel gives the same bits each time, in a few calls and by torch's own account."""
    with flagos.route({op_name: "vendor"}):
        if _warns_that_it_differs(case):
            return False
        runs = [outcome(case.call, case.sample) for _ in range(_CALLS)]
    first = runs[0][0]
    return all(error is None and same_bits(first, made) for made, error in runs)


def _warns_that_it_differs(case: Case) -> bool:
    """Whether torch warns that the operator has no deterministic form, which a few calls may not show."""
    from torch.testing._internal.common_utils import DeterministicGuard

    with DeterministicGuard(True, warn_only=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome(case.call, case.sample)
    return any("does not have a deterministic implementation" in str(one.message) for one in caught)

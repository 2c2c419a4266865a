"""Whether FlagGems' kernel of one overload does what the native one does, case by case."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import flagos
from torch_fl import python_kernels, replay, routing
from torch_fl.flaggems import candidates, cases, envelope
from torch_fl.flaggems.cases import tensors

STRICT, BASIC, FAILED, UNTESTED = "STRICT", "BASIC", "FAILED", "UNTESTED"
ORDER = (STRICT, BASIC, FAILED)
BY_FLAGGEMS = "FlagGems' run of "  # what its steps are called, as against the native kernel's
_CALLS = 5  # of the same: from Python, recorded twice, replayed
# What CUDA says of an error after which no call of this process works.
_LOSES = ("illegal", "unspecified", "device-side assert", "misaligned")


@dataclass(frozen=True)
class Loss:
    """A case in which a process lost the device, by the native kernel or by FlagGems', and with what words."""

    case: str
    native: bool
    why: str
    broken: frozenset[str]  # the conditions that FlagGems' calls were outside of


@dataclass
class _Case:
    """A case, and what was found of it."""

    name: str
    call: Callable[[Any], Any]
    sample: Any
    verdict: str | None = None  # none: FlagGems was not reached
    why: str = ""
    lost: bool = False  # the device
    calls: list[envelope.Holding] = field(default_factory=list)  # what held for each from Python

    def within(self, only: frozenset[str]) -> bool:
        """Whether conditions held for all calls that are known."""
        return bool(self.calls) and all(only <= held for held in self.calls)

    def broken(self, conditions: frozenset[str]) -> frozenset[str]:
        """Those that some call did not keep."""
        return frozenset[str]().union(*(conditions - held for held in self.calls))


def check(
    overload: str,
    where: list[tuple[str, str]],
    samples: int | None = None,
    seconds: float = float("inf"),
    told: Callable[[str, dict[str, Any]], None] | None = None,
    losses: Sequence[Loss] = (),
) -> dict[str, Any]:
    """The verdict on one overload, with the first case that kept it from being STRICT.

    Of each entry, form and type it takes as many samples as `cases.shares` says.
    `verdict`; `plain`, the verdict on the database's own samples alone; `cases`, how many were compared;
    `replayed`, how many of them ended in replays; `not_replayed`, reasons against; `first`. `declined` is how many
    cases have calls that FlagGems does not take, and `declines` the first, with what it says. Where conditions on
    the arguments tell what is right from what is wrong, `verdict` is STRICT, `only` are these conditions,
    `inside` is how many cases were right and wholly within, and `outside` how many were wrong. Where it FAILED,
    `within_all` is the first case that did within all conditions, when that is not `first`. `loss` is the case in
    which the device was lost, after which nothing is compared. Such cases are not run again when they are known
    as `losses`: what the native kernel lost is left out; what FlagGems lost is FAILED, and calls outside the
    conditions that it broke are declined from the start. After `seconds` it stops: what was not reached is in
    `not_reached`, and a verdict that would be STRICT is so only if every entry, form and type was compared at
    least once, or FlagGems took none of its first cases, which is why they take turns. `told` is called with the
    name of each step before it (making a sample, the native run, FlagGems' run) and with what was found so far.
    """
    op_name = f"aten::{overload}"
    random = torch.Tag.nondeterministic_seeded in python_kernels.require_operator(op_name).tags
    found: dict[str, Any] = {"verdict": UNTESTED, "plain": UNTESTED}
    found |= {"cases": 0, "replayed": 0, "first": None}
    began = time.monotonic()
    groups = cases.groups(where)
    shares = cases.shares(overload, where, samples)
    waiting = set(range(len(groups)))  # for a verdict
    passed: Counter[int] = Counter()  # cases of a group that FlagGems did not take
    skipped = ""
    conditions = _telling(overload)
    lost = {loss.case: loss for loss in losses}
    to_come = {loss.case for loss in losses if not loss.native}
    guards = frozenset[str]().union(*(loss.broken for loss in losses))
    right: list[_Case] = []
    wrong: list[_Case] = []
    inherent: _Case | None = None  # FAILED within all conditions
    complete = True
    candidates.limit(overload, guards)
    for loss in losses:
        if not loss.native:  # whether or not there is time to come to it
            found |= {"verdict": FAILED, "first": f"{loss.case}: {loss.why}"}
            found["plain"] = FAILED if cases.plain(loss.case) else found["plain"]

    def step(name: str) -> None:
        if told is not None:
            told(name, found)

    for index, case in _in_turns(groups, shares, lambda group: step(f"making a sample of {group}")):
        if case is None:
            waiting.discard(index)
            continue
        if time.monotonic() - began > seconds:
            left = len(waiting)
            complete = left == 0 and not to_come
            found["not_reached"] = left
            if left and found["verdict"] == STRICT:
                found["verdict"] = UNTESTED
                found["first"] = f"there was no time for {left} of {len(groups)} forms and types"
            if left and found["plain"] != FAILED:
                found["plain"] = UNTESTED
            break
        label, sample = case
        name = f"{groups[index]}, {label}"
        known = lost.get(name)
        if known is not None and known.native:
            skipped = skipped or f"{name}: the native kernel loses the device"
            continue
        one = _Case(name, groups[index].call, sample)
        if known is not None:
            one.verdict, one.why = FAILED, known.why
            to_come.discard(name)
        else:
            _judge(one, op_name, random, found, step)
        if one.lost:
            found["loss"] = Loss(name, one.verdict is None, one.why, one.broken(conditions))
        if one.verdict is not None:
            waiting.discard(index)
            found["cases"] += 1
            if _worse(one.verdict, found["verdict"]):
                found["verdict"] = one.verdict
                if one.verdict != STRICT:
                    found["first"] = f"{name}: {one.why}"
            if cases.plain(name) and _worse(one.verdict, found["plain"]):
                found["plain"] = one.verdict
            if one.verdict != STRICT:
                wrong.append(one)
            elif one.calls:
                one.sample = None  # its memory
                right.append(one)
        else:
            skipped = skipped or f"{name}: {one.why}"
            passed[index] += 1
            if passed[index] == cases.FIRST:
                waiting.discard(index)
        if one.verdict == FAILED and one.within(conditions):
            inherent = inherent or one
        if one.lost:
            complete = False
            if found["plain"] != FAILED:
                found["plain"] = UNTESTED
            break
        if inherent is not None and found["plain"] == FAILED:
            complete = False
            break  # no other case changes anything
    if complete and inherent is None and wrong and right:
        only = _envelope(overload, conditions, guards, right, wrong, step, seconds)
        if only:
            inside = sum(case.within(only) for case in right)
            found |= {"verdict": STRICT, "only": envelope.ordered(only)}
            found |= {"inside": inside, "outside": len(wrong)}
    served = frozenset([envelope.ORDINARY])
    compared = right + wrong
    if found["verdict"] in (STRICT, BASIC) and not any(case.within(served) for case in compared):
        found["verdict"], found["first"] = (
            UNTESTED,
            "no case of a type that it would serve reached it",
        )
    if inherent is not None and found["first"] != f"{inherent.name}: {inherent.why}":
        found["within_all"] = f"{inherent.name}: {inherent.why}"
    if not found["cases"] and found["first"] is None:
        found["first"] = f"no case reached it; {skipped}" if skipped else "no case reached it"
    return found


def _worse(one: str, than: str) -> bool:
    return than == UNTESTED or ORDER.index(one) > ORDER.index(than)


def _telling(overload: str) -> frozenset[str]:
    """The conditions that samples can tell of an overload.

    Those of the database are hardly ever aligned: what is wrong of other causes would seem right within. Products
    have samples of our own for it.
    """
    product = overload.partition(".")[0] in cases.PRODUCTS
    return frozenset(name for name in envelope.CONDITIONS if product or name != envelope.ALIGNED)


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
        for only in envelope.candidates(conditions):
            if not guards <= only or not any(case.within(only) for case in right):
                continue  # it would be lost again, or nothing would be left
            if any(case.within(only) for case in wrong):
                continue
            candidates.limit(overload, only)
            for case in wrong:
                if time.monotonic() - began > seconds:
                    return None
                again = _Case(case.name, case.call, case.sample)
                _judge(again, f"aten::{overload}", False, unrecorded, step)
                if again.lost:
                    return None
                if again.verdict not in (STRICT, None):
                    # It is the first to look at next time.
                    wrong.sort(key=lambda one: one is not case)
                    break
            else:
                return only
        return None
    finally:
        candidates.limit(overload, ())


def _in_turns(
    groups: list[cases.Group], shares: dict[str, int], making: Callable[[cases.Group], None]
) -> Iterator[tuple[int, tuple[str, Any] | None]]:
    """The first case of every group, then the second of each, and so on; None for a group after its last.

    `making` is called before each is made.
    """
    running = {index: group.samples(shares[group.entry]) for index, group in enumerate(groups)}
    while running:
        for index, samples in list(running.items()):
            making(groups[index])
            try:
                case = next(samples, None)
            except Exception:  # the database's functions fail for some types
                case = None
            if case is None:
                del running[index]
            yield index, case


def _judge(
    case: _Case, op_name: str, random: bool, found: dict[str, Any], step: Callable[[str], None]
) -> None:
    """Run a case on the native kernel and on FlagGems', and fill in what is found."""
    step(f"the native run of {case.name}")
    with flagos.route({op_name: "vendor"}):
        expected, error = _outcome(case.call, case.sample)
    if error is not None:
        case.why, case.lost = f"the native kernel raised {_said(error)}", _loses(error)
        return
    step(f"{BY_FLAGGEMS}{case.name}")
    function = candidates.function(op_name.removeprefix("aten::"))
    with flagos.route({op_name: candidates.BACKEND}):
        served = _calls(op_name)
        declined: list[str] = []
        function.told, function.declined = case.calls.append, declined.append
        try:
            actual, error = _outcome(case.call, case.sample)
        finally:
            function.told = function.declined = None
        if declined:
            found["declined"] = found.get("declined", 0) + 1
            found.setdefault("declines", f"{case.name}: {declined[0]}")
        if error is not None:
            case.verdict, case.why, case.lost = FAILED, _said(error), _loses(error)
            return
        if _calls(op_name) == served:
            case.why = "these arguments take another way"
            return
        case.verdict, case.why = compare(expected, actual, random)
        if case.verdict != FAILED and not random and replay.enabled():
            difference = _replays_alike(op_name, case, actual, len(declined))
            if difference:
                case.verdict, case.why = FAILED, difference
        stats = replay.statistics().get(op_name)
        if stats is not None:
            found["replayed"] += stats.replays > 0
            found["not_replayed"] = sorted({*found.get("not_replayed", []), *stats.reasons})[:3]


def _loses(error: Exception) -> bool:
    """Whether the device is of no more use to this process."""
    return "CUDA" in str(error) and any(said in str(error) for said in _LOSES)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: " + " ".join(str(error).split())[:200]


def compare(
    expected: list[torch.Tensor], actual: list[torch.Tensor], random: bool
) -> tuple[str, str]:
    """The verdict on results, and why it is not STRICT."""
    if len(expected) != len(actual):
        return FAILED, f"{len(actual)} results instead of {len(expected)}"
    worst, why = STRICT, ""
    for one, other in zip(expected, actual, strict=True):
        if one.dtype != other.dtype or one.shape != other.shape:
            return (
                FAILED,
                f"{other.dtype} {tuple(other.shape)} instead of {one.dtype} {tuple(one.shape)}",
            )
        if random:
            worst, why = BASIC, "its random numbers are its own"
            continue
        if one.layout != other.layout:
            return FAILED, f"{other.layout} instead of {one.layout}"
        for a, b in zip(cases.components(one), cases.components(other), strict=True):
            verdict, said = _compare(a, b)
            if verdict == FAILED:
                return verdict, said
            if verdict == BASIC and worst == STRICT:
                worst, why = verdict, said
    return worst, why


def _compare(one: torch.Tensor, other: torch.Tensor) -> tuple[str, str]:
    """The verdict on values and strides."""
    a, b = one.detach().cpu(), other.detach().cpu()
    try:
        torch.testing.assert_close(b, a, equal_nan=True)
    except AssertionError as error:
        said = " ".join(str(error).split())[:160]
        rtol, atol = (10 * x for x in torch.testing._comparison.default_tolerances(a))
        try:
            torch.testing.assert_close(b, a, equal_nan=True, rtol=rtol, atol=atol)
        except AssertionError:
            return FAILED, said
        return BASIC, said
    if one.stride() != other.stride() and one.numel() > 0:
        return BASIC, f"strides {other.stride()} instead of {one.stride()}"
    return STRICT, ""


def _outcome(
    call: Callable[[Any], Any], sample: Any
) -> tuple[list[torch.Tensor], Exception | None]:
    torch.manual_seed(7)
    try:
        sample = cases.on_flagos(sample)
        result = call(sample)
        torch.accelerator.synchronize()
        return tensors(result) + tensors((sample.input, sample.args, sample.kwargs)), None
    except Exception as error:
        return [], error


def _calls(op: str) -> int:
    counted = routing.counters().get(op, {"calls": 0, "fallbacks": 0})
    return counted["calls"] - counted["fallbacks"]  # what it declined, it did not serve


def _replays_alike(op_name: str, case: _Case, first: list[torch.Tensor], declined: int) -> str:
    """What differs between the call from Python and the same calls after it; empty when nothing does.

    Each must decline as many calls as the first did, `declined`. Sets whether the device was lost.

    Bit for bit, unless the case does not repeat itself on native kernels either (an operator beside this one may
    add in any order): then within tolerances.
    """
    function = candidates.function(op_name.removeprefix("aten::"))
    for _ in range(_CALLS - 1):
        said: list[str] = []
        function.declined = said.append
        try:
            again, error = _outcome(case.call, case.sample)
        finally:
            function.declined = None
        if error is not None:
            case.lost = _loses(error)
            return f"a repeated call raised {_said(error)}"
        if len(said) != declined:
            return f"a repeated call is declined otherwise: {(said or ['not at all'])[0]}"
        if _same_bits(first, again):
            continue
        if _repeats_natively(op_name, case) or compare(first, again, False)[0] == FAILED:
            return "a repeated call differs from the one before it"
    return ""


def _repeats_natively(op_name: str, case: _Case) -> bool:
    """Whether native kernels give the same bits each time: torch does not say otherwise, and a few calls do."""
    with flagos.route({op_name: "vendor"}):
        if _said_to_differ(case):
            return False
        first, *others = (_outcome(case.call, case.sample)[0] for _ in range(_CALLS))
    return all(_same_bits(first, other) for other in others)


def _said_to_differ(case: _Case) -> bool:
    """Whether torch warns of an operator without a deterministic form, which a few calls need not show."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            _outcome(case.call, case.sample)
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
    return any("does not have a deterministic implementation" in str(one.message) for one in told)


def _same_bits(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    def bits(tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        # What has one element is contiguous with any strides.
        return plain.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)

    some, others = ([c for t in every for c in cases.components(t)] for every in (some, others))
    return len(some) == len(others) and all(
        one.stride() == other.stride() and torch.equal(bits(one), bits(other))
        for one, other in zip(some, others, strict=True)
    )

"""Whether FlagGems' kernel of one overload does what the native one does, case by case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import flagos
from torch_fl import python_kernels, replay, routing
from torch_fl.flaggems import candidates, cases
from torch_fl.flaggems.cases import tensors

STRICT, BASIC, FAILED, UNTESTED = "STRICT", "BASIC", "FAILED", "UNTESTED"
ORDER = (STRICT, BASIC, FAILED)
BY_FLAGGEMS = "FlagGems' run of "  # what its steps are called, as against the native kernel's
_CALLS = 5  # of the same: from Python, recorded twice, replayed


def check(
    overload: str,
    where: list[tuple[str, str]],
    limit: int,
    seconds: float = float("inf"),
    told: Callable[[str, dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """The verdict on one overload, with the first case that kept it from being STRICT.

    `verdict`; `cases`, how many were compared; `replayed`, how many of them ended in replays;
    `not_replayed`, reasons against; `first`. After `seconds` it stops: what was not reached is in
    `not_reached`, and a verdict that would be STRICT is so only if every entry, form and type was compared
    at least once, or has no case that can be, which is why they take turns. `told` is called with the name of
    each step before it (making a sample, the native run, FlagGems' run) and with what was found so far.
    """
    op_name = f"aten::{overload}"
    random = torch.Tag.nondeterministic_seeded in python_kernels.require_operator(op_name).tags
    found: dict[str, Any] = {"verdict": UNTESTED, "cases": 0, "replayed": 0, "first": None}
    began = time.monotonic()
    groups = cases.groups(where)
    waiting = set(range(len(groups)))  # for a verdict
    skipped = ""

    def step(name: str) -> None:
        if told is not None:
            told(name, found)

    for index, case in _in_turns(groups, limit, lambda group: step(f"making a sample of {group}")):
        if case is None:
            waiting.discard(index)
            continue
        if time.monotonic() - began > seconds:
            left = len(waiting)
            found["not_reached"] = left
            if left and found["verdict"] == STRICT:
                found["verdict"] = UNTESTED
                found["first"] = f"there was no time for {left} of {len(groups)} forms and types"
            break
        label, sample = case
        name = f"{groups[index]}, {label}"
        verdict, why, lost = _case(name, op_name, groups[index].call, sample, random, found, step)
        if verdict is None:
            skipped = skipped or f"{name}: {why}"
            continue
        waiting.discard(index)
        found["cases"] += 1
        if found["verdict"] == UNTESTED or ORDER.index(verdict) > ORDER.index(found["verdict"]):
            found["verdict"] = verdict
            if verdict != STRICT:
                found["first"] = f"{name}: {why}"
        if lost:
            break
    if not found["cases"] and found["first"] is None:
        found["first"] = f"no case reached it; {skipped}" if skipped else "no case reached it"
    return found


def _in_turns(
    groups: list[cases.Group], limit: int, making: Callable[[cases.Group], None]
) -> Iterator[tuple[int, tuple[str, Any] | None]]:
    """The first case of every group, then the second of each, and so on; None for a group after its last.

    `making` is called before each is made.
    """
    running = {index: group.samples(limit) for index, group in enumerate(groups)}
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


def _case(
    name: str,
    op_name: str,
    call: Callable[[Any], Any],
    sample: Any,
    random: bool,
    found: dict[str, Any],
    step: Callable[[str], None],
) -> tuple[str | None, str, bool]:
    """The verdict on a case and why, and whether the device is lost; no verdict where FlagGems is not reached."""
    step(f"the native run of {name}")
    with flagos.route({op_name: "vendor"}):
        expected, error = _outcome(call, sample)
    if error is not None:
        return None, f"the native kernel raised {_said(error)}", False
    step(f"{BY_FLAGGEMS}{name}")
    with flagos.route({op_name: candidates.BACKEND}):
        served = _calls(op_name)
        actual, error = _outcome(call, sample)
        if error is not None:
            lost = "CUDA" in str(error) and ("illegal" in str(error) or "unspecified" in str(error))
            return FAILED, _said(error), lost
        if _calls(op_name) == served:
            return None, "these arguments take another way", False
        verdict, why = compare(expected, actual, random)
        if verdict != FAILED and not random and replay.enabled():
            difference = _replays_alike(call, sample, actual)
            if difference:
                verdict, why = FAILED, difference
        stats = replay.statistics().get(op_name)
        if stats is not None:
            found["replayed"] += stats.replays > 0
            found["not_replayed"] = sorted({*found.get("not_replayed", []), *stats.reasons})[:3]
    return verdict, why, False


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
            worst, why = BASIC, said
        if one.stride() != other.stride() and one.numel() > 0 and worst == STRICT:
            worst, why = BASIC, f"strides {other.stride()} instead of {one.stride()}"
    return worst, why


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


def _replays_alike(call: Callable[[Any], Any], sample: Any, first: list[torch.Tensor]) -> str:
    """What differs between the call from Python and the same calls after it; empty when nothing does."""
    for _ in range(_CALLS - 1):
        again, error = _outcome(call, sample)
        if error is not None:
            return f"a repeated call raised {_said(error)}"
        for one, other in zip(first, again, strict=True):
            same = one.stride() == other.stride() and torch.equal(
                one.detach().cpu().contiguous().reshape(-1).view(torch.uint8),
                other.detach().cpu().contiguous().reshape(-1).view(torch.uint8),
            )
            if not same:
                return "a repeated call differs from the one before it"
    return ""

"""The recorded calls of an overload, judged one by one in processes that may die."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from flagos.processes.pool import Report
from torch_fl import launcher
from torch_fl.flaggems import envelope, package, sizes
from torch_fl.flaggems.table_file import BASIC, FAILED, STRICT, UNTESTED, Verdict
from torch_fl_tools.comparing import tasks
from torch_fl_tools.flaggems.recorded import classes, ladder, sanitizer
from torch_fl_tools.flaggems.recorded.judging import Outcome, judge
from torch_fl_tools.flaggems.recorded.result import Loss, Progress, Result, Results, nothing
from torch_fl_tools.records import facts
from torch_fl_tools.records.facts import Call

NO_TIME = "there was no time for its recorded calls"
NO_SAMPLES = "no sample was verified, recorded calls alone"
_BY_FLAGGEMS = "FlagGems' run of "
_CALL_SECONDS = 120.0  # limit of one run of a call, with compilation
_INTERPRETED = 4096  # elements
_LOSSES = 6  # processes that the calls of an overload may lose


@dataclass(frozen=True)
class How:
    """How calls are judged."""

    every_config: bool = False
    sanitizer: bool = False
    interpreted: bool = (
        False  # only what Triton's interpreter computes in seconds, and as a chip does
    )
    each: float = 90.0  # seconds for one overload


def verify(
    calls: Iterable[Call],
    jobs: int,
    how: How,
    seconds: float = float("inf"),
    progress: Callable[[int, int, str, Result], None] = lambda *_: None,
    stop: Callable[[], bool] = lambda: False,
) -> Results:
    """Returns the result for each overload that is called; see `check`. Forks, so no device may be in use yet."""
    by_overload: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_overload[call.overload].append(call)
    began = time.monotonic()
    losses: dict[str, list[Loss]] = defaultdict(list)
    found: Results = {}
    todo, total, done = sorted(by_overload), len(by_overload), 0

    def task(name: str, report: Report) -> Progress:
        launcher.uninstall()  # it keeps the kernel of the first configuration
        return check(name, by_overload[name], how, report, losses[name])

    alone: list[str] = []  # overloads that found no memory beside the others, and run again without
    beside: dict[str, Progress] = {}  # what was found of these before
    while todo or alone:
        by_itself = not todo
        if by_itself:
            todo, alone = alone, []
        left = seconds - (time.monotonic() - began)
        running = tasks.run(todo, task, 1 if by_itself else jobs, _CALL_SECONDS, left, stop)
        with closing(running) as ended:
            for one in ended:
                result: Progress = {**(one.result or one.partial or nothing(NO_TIME))}
                lost = result.pop("lost", None)
                short = result.pop("short", False)
                if one.result is None and one.failure is not None and one.step:
                    by_flaggems = one.step.startswith(_BY_FLAGGEMS)
                    lost = Loss(one.step.partition(" run of ")[2], one.failure, by_flaggems)
                elif one.result is None:
                    result |= {"first": NO_TIME, "not_reached": True}
                if lost is not None and len(losses[one.name]) < _LOSSES and not one.over:
                    losses[one.name].append(lost)
                    todo.insert(0, one.name)
                    print(f"{one.name} again, lost in {lost.call}: {lost.why}", file=sys.stderr)
                    continue
                if by_itself and one.result is None:
                    result = {**beside[one.name], "not_reached": True}  # what there was before it
                if lost is not None and lost.by_flaggems:
                    result |= {"verdict": FAILED, "first": f"{lost.call}: {lost.why}"}
                if short and not by_itself and jobs > 1 and not one.over:
                    alone.append(one.name)
                    beside[one.name] = result
                    print(f"{one.name} again without others: {result['declines']}", file=sys.stderr)
                    continue
                if short and result["calls"] == 0:
                    result["not_reached"] = True  # so that it is tried at another time
                done += 1
                result["seconds"] = round(one.seconds, 1)
                found[one.name] = result
                progress(done, total, one.name, found[one.name])
    return dict(sorted(found.items()))


def check(
    overload: str,
    calls: list[Call],
    how: How,
    report: Report = lambda step, partial: None,
    losses: Iterable[Loss] = (),
) -> Progress:
    """Judges an overload by its recorded calls, and by smaller ones of the same form.

    `verdict`: STRICT, BASIC or FAILED as for the database's samples, UNTESTED where FlagGems serves none of the calls.
    `calls` were compared, `configurations` of kernels were tried at most, `first` is the first call that was wrong, or
    the reason. `sizes` are the classes in which all calls were right. If calls are wrong from some size on, `verdict`
    is STRICT with the `sizes` below. If results are wrong and conditions tell such calls from the right ones,
    `verdict` is STRICT and `only` are these conditions; a call that reads or writes beside its arguments, or ends the
    process, has no such excuse. `lost` is the call in which the device was lost; `short` says that there was no memory
    for a call, which counts neither way.
    """
    known = {loss.call: loss for loss in losses}
    right: list[tuple[Call, Outcome]] = []
    wrong: list[tuple[Call, Outcome]] = []
    about = nothing("FlagGems serves no recorded call")
    began = time.monotonic()
    late = False

    def judged(call: Call) -> Outcome:
        loss = known.get(str(call))
        if loss is not None:
            outcome = Outcome(
                FAILED if loss.by_flaggems else None, loss.why, sizes=classes.of(call)
            )
        else:

            def step(name: str) -> None:
                report(name, {**about})

            outcome = judge(call, how.every_config, step, until=began + how.each)
            if outcome.verdict in (STRICT, BASIC) and how.sanitizer:
                step(f"{_BY_FLAGGEMS}{call}")
                if reason := sanitizer.check(call):
                    outcome = replace(outcome, verdict=FAILED, why=reason)
        if outcome.short:
            about["short"] = True
        if outcome.verdict is None:
            about["declines"] = about.get("declines") or f"{call}: {outcome.why}"
        else:
            about["calls"] += 1
            about["configurations"] = max(about.get("configurations", 1), outcome.configurations)
            (right if outcome.verdict in (STRICT, BASIC) else wrong).append((call, outcome))
            if outcome.verdict == FAILED and not about.get("wrong"):
                about["wrong"] = f"{call}: {outcome.why}"
            if outcome.verdict == BASIC:
                about["basic"] = f"{call}: {outcome.why}"
        return outcome

    for same in ladder.selected(calls):
        served = True
        for call in [*same, *_rungs(same)]:
            if how.interpreted and not _can_be_interpreted(call):
                continue
            late = late or time.monotonic() - began > how.each
            if late or not served:
                break
            outcome = judged(call)
            if outcome.lost:
                about["lost"] = Loss(str(call), outcome.why, outcome.verdict is not None)
                return about
            served = outcome.verdict is not None or outcome.short
            late = late or outcome.late
    return _concluded(overload, about, right, wrong, late)


def _rungs(same: list[Call]) -> Iterator[Call]:
    """Smaller calls than the largest of a form, of classes that it has not."""
    seen = {tuple(sorted(classes.of(call).items())) for call in same}
    for call in ladder.smaller(same[0]):
        if (key := tuple(sorted(classes.of(call).items()))) not in seen:
            seen.add(key)
            yield call


def _concluded(
    overload: str,
    about: Progress,
    right: list[tuple[Call, Outcome]],
    wrong: list[tuple[Call, Outcome]],
    late: bool,
) -> Progress:
    found: Progress = {**about}
    found.pop("wrong", None)
    found.pop("basic", None)
    if late:
        found["not_reached"] = True
    if not (right or wrong):
        found["first"] = NO_TIME if late else about.get("declines", about["first"])
        return found
    found["verdict"] = BASIC if "basic" in about else STRICT
    found["first"] = about.get("basic")
    if wrong:
        first = about["wrong"]
        if only := _conditions(right, wrong):
            found |= {"verdict": STRICT, "only": envelope.ordered(only), "first": first}
            right = [(call, outcome) for call, outcome in right if only <= outcome.held]
        elif below := _below(right, wrong):
            found |= {"verdict": STRICT, "first": first, "limited": True}
            right = below
        else:
            found |= {"verdict": FAILED, "first": first}
            return found
    verified = sizes.union(outcome.sizes for _, outcome in right)
    found["sizes"] = sizes.to_table(overload, verified)
    return found


def _conditions(
    right: list[tuple[Call, Outcome]], wrong: list[tuple[Call, Outcome]]
) -> frozenset[str] | None:
    """The simplest conditions that every wrong call breaks and some right call keeps; of wrong results alone."""
    if any(outcome.lost or not outcome.compared for _, outcome in wrong):
        return None
    beside = frozenset(envelope.CONDITIONS) - {envelope.ORDINARY, envelope.ALIGNED}
    for only in envelope.condition_sets(beside):
        if not any(only <= outcome.held for _, outcome in wrong) and any(
            only <= outcome.held for _, outcome in right
        ):
            return only
    return None


def _below(
    right: list[tuple[Call, Outcome]], wrong: list[tuple[Call, Outcome]]
) -> list[tuple[Call, Outcome]]:
    """The right calls that are smaller than every wrong one, where each wrong form is right when it is smaller."""
    least = min(_magnitude(outcome) for _, outcome in wrong)
    small = [(call, outcome) for call, outcome in right if _magnitude(outcome) < least]
    forms = {ladder.form(call) for call, _ in small}
    if any(ladder.form(call) not in forms for call, _ in wrong):
        return []
    verified = sizes.union(outcome.sizes for _, outcome in small)
    return [] if any(sizes.holds(verified, outcome.sizes) for _, outcome in wrong) else small


def _magnitude(outcome: Outcome) -> int:
    """The class of the elements of the largest argument."""
    return max((bits[0].bit_length() for bits in outcome.sizes.values()), default=0)


def prepare() -> None:
    """Import FlagGems, so that processes may be forked. Raises RuntimeError."""
    torch.set_num_threads(1)
    package.load_before_forking()


def _can_be_interpreted(call: Call) -> bool:
    """Whether Triton's interpreter takes less than minutes, and does not truncate to 16 bits where a device rounds."""
    halves = any(one.dtype.is_floating_point and one.dtype.itemsize < 4 for one in call.tensors())
    return not halves and max(ladder.weight(call), ladder.work(call)) <= _INTERPRETED


def digest(calls: Iterable[Call], how: How) -> str:
    """A short hash of the calls and of how they are judged: with an equal one, nothing needs to run again."""
    digest_of = hashlib.sha256(f"{how.every_config} {how.sanitizer}".encode())
    for line in sorted(json.dumps(facts.to_json(replace(call, count=1))) for call in calls):
        digest_of.update(line.encode())
    return digest_of.hexdigest()[:12]


def merged(
    overload: str,
    entry: Verdict | None,
    found: Result,
    digest: str,
    chip: str = "",
) -> Verdict:
    """The entry of a table with what recorded calls tell. They alone make no kernel STRICT: they have no NaN, say."""
    unknown: Verdict = {"verdict": UNTESTED, "cases": 0, "first": NO_SAMPLES}
    made: Verdict = {**(entry or unknown)}
    if not found.get("not_reached"):
        made["records"] = {
            "digest": digest,
            "verdict": found["verdict"],
            "calls": found["calls"],
            "configurations": found.get("configurations", 1),
        }
    if found["verdict"] == FAILED:
        made |= {"verdict": FAILED, "first": f"recorded call {found['first']}"}
        if chip:
            made["wrong_on"] = chip
        made.pop("only", None)
        made.pop("sizes", None)
        made.pop("beyond", None)
    if made["verdict"] not in (STRICT, BASIC) or "sizes" not in found or found.get("not_reached"):
        return made
    verified = sizes.from_table(overload, found["sizes"])
    if not found.get("limited"):
        known = made.get("sizes")
        before = sizes.from_table(overload, known) if known else sizes.sampled(overload)
        verified = sizes.union([before, verified])
    made["sizes"] = sizes.to_table(overload, verified)
    if "only" in found:
        made["only"] = envelope.ordered({*made.get("only", ()), *found["only"]})
        made["first"] = made.get("first") or f"recorded call {found['first']}"
    if found.get("limited"):
        made["beyond"] = str(found["first"])
    if found["verdict"] == BASIC and made["verdict"] == STRICT:
        made |= {"verdict": BASIC, "first": f"recorded call {found['first']}"}
    return made

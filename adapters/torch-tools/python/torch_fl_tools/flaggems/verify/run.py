"""Verifies overloads on samples, each in a process of its own, forked before the device is in use."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing

import torch

from flagos.processes.pool import Report, TaskOutcome
from torch_fl import flagos
from torch_fl.flaggems import implementations, package
from torch_fl.flaggems.table_file import FAILED, UNTESTED, Verdict
from torch_fl.native import native
from torch_fl_tools.comparing import tasks
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems import cases, measured_calls
from torch_fl_tools.flaggems.check import check
from torch_fl_tools.flaggems.running import BY_FLAGGEMS, BY_ITSELF, BY_NATIVE, Loss
from torch_fl_tools.flaggems.tally import Checked, untested
from torch_fl_tools.flaggems.verify import requirements
from torch_fl_tools.flaggems.verify.entries import NO_TIME, Verdicts, is_cut

_CASE_SECONDS = 120.0  # limit of one run of a case, with compilation and tuning, beside other tasks
_ALONE_SECONDS = 300.0  # the same limit without other tasks
_LOSSES = 8  # processes that the cases of one overload may lose before it is given up
_KEEP_EVERY = 5.0  # seconds between writing the table
_LONGER = 4  # times as long as before has an overload that was cut, once all were reached
EACH = 90.0
CONFIGS = 1

Progress = Callable[[int, int, str, Verdict], None]
Places = dict[str, list[tuple[str, str]]]
"""The entries and forms of the database that call an overload, by overload."""


def verify(
    pattern: str = "*",
    jobs: int = 4,
    samples: int | None = None,
    progress: Progress | None = None,
    seconds: float = float("inf"),
    each: float = EACH,
    known: Verdicts | None = None,
    on_progress: Callable[[Verdicts], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    configs: int = CONFIGS,
) -> Verdicts:
    """The verdict of every overload whose name matches. Forks, so no device may be in use yet.

    `seconds` limit the whole run, `each` one overload; while `seconds` are left after all were reached, those that were
    cut run again for longer. `known` are verdicts that are taken as they are, except for
    those that lacked time. `on_progress` gets the verdicts so far every few seconds. An interrupt
    (KeyboardInterrupt), or `stop()` once it is true, ends it early. Kernels are tuned among `configs` of their
    configurations. Raises RuntimeError when a device is in use, or FlagGems cannot be used.
    """
    until = time.monotonic() + seconds
    if native().is_initialized() or flagos.is_initialized():
        raise RuntimeError("the device is in use in this process already: verify in a fresh one")
    requirements.require_usable()
    names = [name for name in implementations.registered() if matches(name, pattern)]
    if not names:
        raise RuntimeError(f"no overload of FlagGems matches {pattern!r}: `flagos ops` lists them")
    verdicts = {name: _before(name, known or {}) for name in names}
    todo = [name for name in names if verdicts[name].get("first") == NO_TIME]
    try:
        # One thread: a process that forks must have no others.
        torch.set_num_threads(1)
        package.load_before_forking()
        with package.asking_another_process():
            cases.database()
        requirements.require_device()
        where = _places(todo, verdicts, jobs, until, stop)
        run = _Run(verdicts, where, progress, on_progress)
        run.all(jobs, samples, each, configs, until, stop)
        while math.isfinite(until) and each < until - time.monotonic() and run.cut_again():
            each *= _LONGER
            run.all(jobs, samples, each, configs, until, stop)
    except KeyboardInterrupt:
        print("interrupted: what was not reached is UNTESTED", file=sys.stderr)
    return dict(sorted(verdicts.items()))


def _before(name: str, known: Verdicts) -> Verdict:
    """The entry of an overload before it runs; that of one which is to run says that there was no time."""
    if not implementations.usable(name):
        return untested("it is never routed")
    before = known.get(name)
    return untested(NO_TIME) if before is None or is_cut(before) else before


def _places(
    todo: list[str], verdicts: Verdicts, jobs: int, until: float, stop: Callable[[], bool]
) -> Places:
    """Finds the samples of overloads. An overload that no sample calls becomes UNTESTED for that reason."""
    left = until - time.monotonic()
    where, lost = cases.calling(set(todo), jobs, seconds=left, stop=stop)
    why = "no sample calls it"
    for one in lost:
        if one.failure is not None:
            why = f"no sample was found: {one.failure} in {one.step}"
            print(f"some samples are missing: {one.failure} in {one.step}", file=sys.stderr)
    if any(one.over for one in lost):
        why = NO_TIME
    for name in todo:
        if name not in where:
            verdicts[name] = untested(why)
    return {name: where[name] for name in todo if name in where}


class _Run:
    """Has every overload run, again where a process was lost, and by itself where it had no room beside others."""

    def __init__(
        self,
        verdicts: Verdicts,
        where: Places,
        progress: Progress | None,
        on_progress: Callable[[Verdicts], None] | None,
    ) -> None:
        self._verdicts = verdicts
        self._where = where
        self._progress = progress
        self._on_progress = on_progress
        self._losses: dict[str, list[Loss]] = defaultdict(list)
        self._done, self._total, self._written = 0, len(where), time.monotonic()
        first = measured_calls.measured()
        self._todo = sorted(where, key=lambda name: (name not in first, name))
        # Overloads that were late or found no memory beside other tasks, and run again without.
        self._alone: list[str] = []

    def all(
        self,
        jobs: int,
        samples: int | None,
        each: float,
        configs: int,
        until: float,
        stop: Callable[[], bool],
    ) -> None:
        """Run until nothing is left to do, or no time."""

        def task(name: str, report: Report) -> Checked:
            with package.tuned_among(configs):
                return _checked(name, self._where[name], samples, each, report, self._losses[name])

        while self._todo or self._alone:
            by_itself = not self._todo
            if by_itself:
                self._todo, self._alone = self._alone, []
            limit = _ALONE_SECONDS if by_itself else _CASE_SECONDS
            left = until - time.monotonic()
            at_a_time = 1 if by_itself else jobs
            running = tasks.run(self._todo, task, at_a_time, limit, left, stop)
            with closing(running) as ended:
                for one in ended:
                    self._take(one, by_itself)
                    if not self._comes_again(one, by_itself, jobs):
                        self._count(one)
                    self._keep()

    def cut_again(self) -> bool:
        """Put the overloads that lacked time back into the line. Whether there are any."""
        self._todo = [name for name in self._where if is_cut(self._verdicts[name])]
        self._total += len(self._todo)
        return bool(self._todo)

    def _take(self, one: TaskOutcome, by_itself: bool) -> None:
        """Note the verdict of a task that ended."""
        if by_itself and one.over:
            return  # it is late without other tasks too
        found = verdict(one, by_itself)
        if found.get("first") == NO_TIME and self._verdicts[one.name].get("first") != NO_TIME:
            return  # what it had found in less time stands
        # A loss of the device counts whatever became of the process afterwards.
        failed = any(not loss.native for loss in self._losses[one.name])
        if found["verdict"] != UNTESTED or not failed:
            self._verdicts[one.name] = found
        elif not one.over:
            self._verdicts[one.name].pop("again", None)

    def _comes_again(self, one: TaskOutcome, by_itself: bool, jobs: int) -> bool:
        """Put the overload of a task that ended back into the line, if it has to run again."""
        loss, known = _loss(one), self._losses[one.name]
        again = len(known) < _LOSSES
        if loss and _by_flaggems_after_all(loss, known):
            why = f"{loss.case}: {loss.why}, but not before FlagGems' runs"
            self._verdicts[one.name] |= {"verdict": FAILED, "first": why}
            loss = None
        if loss and again and (loss.native or loss.broken):
            others = [other for other in known if other.case != loss.case]
            self._losses[one.name] = [*others, loss]
            self._verdicts[one.name]["again"] = True
            self._todo.insert(0, one.name)
            whose = BY_NATIVE if loss.native else BY_FLAGGEMS
            print(f"{one.name} again, lost in {whose}{loss.case}", file=sys.stderr)
            return True
        short = (one.result or {}).get("short", False)
        if short and not by_itself and jobs > 1 and not one.over:
            self._alone.append(one.name)
            self._verdicts[one.name]["again"] = True
            print(f"{one.name} again without others: it found no memory", file=sys.stderr)
            return True
        if one.late and not by_itself and one.step.startswith(BY_FLAGGEMS):
            self._alone.append(one.name)
            return True
        return False

    def _count(self, one: TaskOutcome) -> None:
        self._done += not (one.over and not one.seconds)
        if self._progress is not None and one.seconds:
            self._progress(self._done, self._total, one.name, self._verdicts[one.name])

    def _keep(self) -> None:
        if self._on_progress is not None and time.monotonic() - self._written > _KEEP_EVERY:
            self._on_progress(self._verdicts)
            self._written = time.monotonic()


def _checked(
    name: str,
    where: list[tuple[str, str]],
    samples: int | None,
    each: float,
    report: Report,
    losses: list[Loss],
) -> Checked:
    try:
        return check(name, where, samples, each, report, losses)
    except Exception as error:  # an error of the check itself says nothing about FlagGems
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = " ".join(str(error).split())[:160]
        why = f"it could not be checked: {type(error).__name__} in {last.name}: {message}"
        checked = untested(why)
        if implementations.without_memory(error):
            checked |= {"short": True, "not_reached": 1}  # so that it is tried at another time
        return checked


def _loss(one: TaskOutcome) -> Loss | None:
    """The case in which the process ended, for the next process."""
    for step, sure in ((BY_NATIVE, False), (BY_ITSELF, True)):
        if one.failure is not None and one.step.startswith(step):
            case = one.step.removeprefix(step)
            return Loss(case, True, one.failure, frozenset(), sure)
    loss: Loss | None = (one.result or {}).get("loss")
    return loss


def _by_flaggems_after_all(loss: Loss, known: list[Loss]) -> bool:
    """Whether the native kernel lost the device again although it did not by itself."""
    suspects = {other.case for other in known if other.native and not other.sure}
    return loss.native and not loss.sure and loss.case in suspects


def verdict(one: TaskOutcome, by_itself: bool = False) -> Verdict:
    """The verdict of a task that ended, of its own accord or otherwise, `by_itself` or beside other tasks."""
    partial: Checked = one.partial or untested(NO_TIME)
    so_far = partial.copy()
    if so_far.get("plain") != FAILED:
        so_far["plain"] = UNTESTED
    if one.result is not None:
        result: Checked = one.result
        found = result.copy()
        loss = found.pop("loss", None)
        if loss is not None and found["verdict"] != FAILED:
            found |= untested(f"the native kernel lost the device in {loss.case}")
    elif one.failure is not None:
        found = so_far
        by_flaggems = one.step.startswith(BY_FLAGGEMS)
        if found["verdict"] != FAILED:
            why = f"{one.failure} in {one.step or 'its start'}"
            # An end at any other step says nothing about FlagGems, and a task that is late beside others may be tuning.
            wrong = by_flaggems and (by_itself or not one.late)
            found["verdict"] = FAILED if wrong else UNTESTED
            if by_flaggems and not wrong:
                found["not_reached"] = found.get("not_reached") or 1
                why += ", beside other processes"
            found["first"] = why
            if wrong and cases.plain(one.step):
                found["plain"] = FAILED
    elif so_far["verdict"] == FAILED:
        found = so_far
    else:
        found = {**so_far, **untested(NO_TIME), "cases": so_far["cases"]}
    found.pop("short", None)
    found["seconds"] = round(one.seconds, 1)
    return found

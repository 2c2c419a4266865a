"""Verdicts: FlagGems' overloads against the native kernels, on the samples of torch's operator database.

    flagos verify [--ops PATTERNS] [--jobs N] [--samples N] [--seconds N] [--each N] [--resume]
                  [--configs N] [--out FILE] [--json]
    flagos verify --record FILE ... [--every-config] [--sanitizer] [--jobs N] [--seconds N] [--each N]
    flagos verify --show [--ops PATTERNS] [--json]

Each overload has a process of its own, forked before the device is in use. Its operators' samples run twice
on flagos, on the native kernel and on FlagGems', and must agree: STRICT in values (torch's own tolerances),
dtype, shape, strides and where NaN is; BASIC with ten times the tolerance, or with other strides, or where
numbers are random and only their shape can be compared; FAILED otherwise. Calls that are replayed are
compared with the ones from Python bit for bit. Where conditions on the arguments (no complex numbers, no empty
tensor, ...) tell right from wrong, the verdict is STRICT within them, and other calls go to the native kernel.
Variations are made of the samples; the verdict on those of the database alone is counted beside. Of the entry
that is about an overload all samples are taken; the others that call it share 240, and have at least six each.
What its own entry does not call is called itself with that entry's samples.

Kernels that are tuned, such as products, run the first configuration that fits the chip, as they do in a program, or
the fastest of the first few (`--configs`): they may have hundreds, and each takes seconds to compile.

Then calls recorded from whole models run (`flagos record`), at their sizes and at smaller ones, on memory with red
zones: what a kernel writes outside its tensors, or reads outside them and uses, is FAILED, and so is what ends the
process. The sizes at which all was right are kept, by magnitude: `FLAGOS_FLAGGEMS=verified` serves no other. With
`--record` only the calls of these records run, and the table keeps what else it has; an overload that is FAILED in the
table does not run again, and counts. `--every-config` runs every configuration that a tuned kernel may end up with,
instead of the first. `--sanitizer` runs each call under NVIDIA's compute-sanitizer, too.

Overloads that `flagos tune` measures come first, since only they can serve by default. When `--seconds` are
over, the table is written all the same; the rest keeps the verdicts of the table before it, or is UNTESTED.
While it runs and after an interrupt, what there is lies beside the table, in FILE.partial, and the table is as
it was. `--resume` goes on from there, or from the table, with what had no time or not enough. `--show` tells
the table that the plan reads, and runs nothing: every overload that is not STRICT and every one whose calls are
not all replayed, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import torch

from flagos.cli import output_files
from torch_fl import flagos
from torch_fl.flaggems import envelope, implementations, interpreted, pack_in_use, package, tables
from torch_fl.flaggems.tables import BASIC, FAILED, STRICT, UNTESTED
from torch_fl.native import native
from torch_fl_tools.comparing import processes
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems import cases, tune
from torch_fl_tools.flaggems.check import BY_FLAGGEMS, BY_ITSELF, BY_NATIVE, Loss, check
from torch_fl_tools.flaggems.command import at_least_one, not_negative, one_interrupt
from torch_fl_tools.flaggems.comparison import ORDER
from torch_fl_tools.flaggems.recorded import sanitizer, verifying
from torch_fl_tools.records import files
from torch_fl_tools.records.facts import Call

__all__ = ["BASIC", "FAILED", "STRICT", "UNTESTED", "main", "verify"]

Verdicts = dict[str, dict[str, Any]]
_NO_TIME = "there was no time for it"
_AGAIN = "again"  # marks an entry of an overload that was about to be run again
_CASE_SECONDS = 120.0  # limit of one run of a case, with compilation and tuning, beside other tasks
_ALONE_SECONDS = 300.0  # the same limit without other tasks
_LOSSES = 8  # processes that the cases of one overload may lose before it is given up
_EACH = 90.0
_CONFIGS = 1
_OF_SAMPLES = 0.6  # of the time, before recorded calls
_KEEP_EVERY = 5.0  # seconds between writing the table


def verify(
    pattern: str = "*",
    jobs: int = 4,
    samples: int | None = None,
    progress: Callable[[int, int, str, dict[str, Any]], None] | None = None,
    seconds: float = float("inf"),
    each: float = _EACH,
    known: Verdicts | None = None,
    kept: Callable[[Verdicts], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    configs: int = _CONFIGS,
) -> Verdicts:
    """The verdict of every overload whose name matches. Forks, so no device may be in use yet.

    `seconds` are for all of it, `each` for one overload. `known` are verdicts that are taken as they are,
    where time was not what they lacked. `kept` is told what there is, now and then. An interrupt
    (KeyboardInterrupt), or `stop()` once it is true, ends it early. Kernels are tuned among `configs` of their
    configurations. Raises RuntimeError when a device is in use, or FlagGems cannot be used.
    """
    began = time.monotonic()
    if native().is_initialized() or flagos.is_initialized():
        raise RuntimeError("the device is in use in this process already: verify in a fresh one")
    _require_usable()
    names = [name for name in implementations.registered() if matches(name, pattern)]
    if not names:
        raise RuntimeError(f"no overload of FlagGems matches {pattern!r}: `flagos ops` lists them")
    verdicts: Verdicts = {name: _untested(_NO_TIME) for name in names}
    for name in names:
        if not implementations.usable(name):
            verdicts[name] = _untested("it is never routed")
        elif (before := (known or {}).get(name)) is not None and not _cut(before):
            verdicts[name] = before
    todo = [name for name in names if verdicts[name].get("first") == _NO_TIME]
    try:
        # One thread: a process that forks must have no others.
        torch.set_num_threads(1)
        package.load_before_forking()
        with package.asking_another_process():
            cases.database()
        _require_device()
        left = seconds - (time.monotonic() - began)
        where, lost = cases.calling(set(todo), jobs, seconds=left, stop=stop)
        why = "no sample calls it"
        for one in lost:
            if one.failure is not None:
                why = f"no sample was found: {one.failure} in {one.step}"
                print(f"some samples are missing: {one.failure} in {one.step}", file=sys.stderr)
        if any(one.over for one in lost):
            why = _NO_TIME
        for name in todo:
            if name not in where:
                verdicts[name] = _untested(why)
        first = tune.measured()
        todo = sorted((name for name in todo if name in where), key=lambda n: (n not in first, n))

        losses: dict[str, list[Loss]] = defaultdict(list)

        def task(name: str, told: processes.Told) -> dict[str, Any]:
            with package.tuned_among(configs):
                return _checked(name, where[name], samples, each, told, losses[name])

        done, total, written = 0, len(todo), time.monotonic()
        # Overloads that were late or found no memory beside other tasks, and run again without.
        alone: list[str] = []

        while todo or alone:
            by_itself = not todo
            if by_itself:
                todo, alone = alone, []
            limit = _ALONE_SECONDS if by_itself else _CASE_SECONDS
            left = seconds - (time.monotonic() - began)
            running = processes.run(todo, task, 1 if by_itself else jobs, limit, left, stop)
            with closing(running) as ended:
                for one in ended:
                    short = (one.result or {}).get("short", False)
                    if not (by_itself and one.over):  # else it is late without other tasks too
                        found = _verdict(one, by_itself)
                        # A loss of the device counts whatever became of the process afterwards.
                        failed = any(not loss.native for loss in losses[one.name])
                        if found["verdict"] != UNTESTED or not failed:
                            verdicts[one.name] = found
                        elif not one.over:
                            verdicts[one.name].pop(_AGAIN, None)
                    loss = _loss(one)
                    known_of_it = losses[one.name]
                    again = len(known_of_it) < _LOSSES
                    if loss and _by_flaggems_after_all(loss, known_of_it):
                        why = f"{loss.case}: {loss.why}, but not before FlagGems' runs"
                        verdicts[one.name] |= {"verdict": FAILED, "first": why}
                        loss = None
                    if loss and again and (loss.native or loss.broken):
                        others = [other for other in known_of_it if other.case != loss.case]
                        losses[one.name] = [*others, loss]
                        verdicts[one.name][_AGAIN] = True
                        todo.insert(0, one.name)
                        whose = BY_NATIVE if loss.native else BY_FLAGGEMS
                        print(f"{one.name} again, lost in {whose}{loss.case}", file=sys.stderr)
                    elif short and not by_itself and jobs > 1 and not one.over:
                        alone.append(one.name)
                        verdicts[one.name][_AGAIN] = True
                        print(
                            f"{one.name} again without others: it found no memory", file=sys.stderr
                        )
                    elif one.late and not by_itself and one.step.startswith(BY_FLAGGEMS):
                        alone.append(one.name)
                    else:
                        done += not (one.over and not one.seconds)
                        if progress is not None and one.seconds:
                            progress(done, total, one.name, verdicts[one.name])
                    if kept is not None and time.monotonic() - written > _KEEP_EVERY:
                        kept(verdicts)
                        written = time.monotonic()
    except KeyboardInterrupt:
        print("interrupted: what was not reached is UNTESTED", file=sys.stderr)
    return dict(sorted(verdicts.items()))


def _require_usable() -> None:
    """Raise RuntimeError with advice."""
    found = implementations.registered()
    reason = implementations.why_unusable() if found else implementations.missing()
    if reason:
        raise RuntimeError(f"FlagGems cannot be used: {reason}")
    if pack_in_use.in_use() is not None:
        raise RuntimeError(
            f"{pack_in_use.PACK} is set, and its recordings would be verified instead of FlagGems' kernels: unset it"
        )


def _require_device() -> None:
    """Raise RuntimeError if a process forked now cannot use the device, so that none could."""

    def answers(_: str, __: processes.Told) -> str:
        try:
            return str(torch.ones(2, device="flagos").sum().item())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    (one,) = processes.run(["a first sum"], answers, 1, _CASE_SECONDS)
    if one.result != "2.0":
        raise RuntimeError(f"a forked process cannot use the device: {one.failure or one.result}")


def _cut(entry: dict[str, Any]) -> bool:
    """Whether a verdict is missing for lack of time."""
    late = entry["verdict"] != FAILED and entry.get("not_reached")
    return bool(late) or entry.get("first") == _NO_TIME or _AGAIN in entry


def _untested(why: str) -> dict[str, Any]:
    return {"verdict": UNTESTED, "plain": UNTESTED, "cases": 0, "first": why}


def _checked(
    name: str,
    where: list[tuple[str, str]],
    samples: int | None,
    each: float,
    told: processes.Told,
    losses: list[Loss],
) -> dict[str, Any]:
    try:
        return check(name, where, samples, each, told, losses)
    except Exception as error:  # an error of the check itself says nothing about FlagGems
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:160]
        found = _untested(f"it could not be checked: {type(error).__name__} in {last.name}: {said}")
        if implementations.without_memory(error):
            found |= {"short": True, "not_reached": 1}  # so that it is tried at another time
        return found


def _loss(one: processes.Ended) -> Loss | None:
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


def _verdict(one: processes.Ended, by_itself: bool = False) -> dict[str, Any]:
    """The verdict of a task that ended, of its own accord or otherwise, `by_itself` or beside other tasks."""
    so_far = {"plain": UNTESTED, **(one.so_far or _untested(_NO_TIME))}
    if so_far["plain"] != FAILED:
        so_far["plain"] = UNTESTED
    if one.result is not None:
        found = dict(one.result)
        loss = found.pop("loss", None)
        if loss is not None and found["verdict"] != FAILED:
            found |= _untested(f"the native kernel lost the device in {loss.case}")
    elif one.failure is not None:
        found = so_far
        by_flaggems = one.step.startswith(BY_FLAGGEMS)
        if found["verdict"] != FAILED:
            found["first"] = f"{one.failure} in {one.step or 'its start'}"
            # An end at any other step says nothing about FlagGems, and a task that is late beside others may be tuning.
            wrong = by_flaggems and (by_itself or not one.late)
            found["verdict"] = FAILED if wrong else UNTESTED
            if by_flaggems and not wrong:
                found["not_reached"] = found.get("not_reached") or 1
                found["first"] += ", beside other processes"
            if wrong and cases.plain(one.step):
                found["plain"] = FAILED
    elif so_far["verdict"] == FAILED:
        found = so_far
    else:
        found = {**so_far, **_untested(_NO_TIME), "cases": so_far["cases"]}
    found.pop("short", None)
    found["seconds"] = round(one.seconds, 1)
    return found


def _show(pattern: str, as_json: bool) -> int:
    known = tables.verdicts()
    shown = {name: entry for name, entry in sorted(known.items()) if matches(name, pattern)}
    if as_json:
        print(json.dumps(shown))
    elif not known:
        where = tables.chip() or "this machine"
        print(f"error: there is no table of {where}: run `flagos verify`", file=sys.stderr)
    else:
        if tables.samples_from() is not None:
            print(f"verified on {tables.chip_of()}")
        print(*_lines(shown), sep="\n")
    return 0 if known else 1


def _lines(shown: Verdicts) -> list[str]:
    """The lines of the summary: overloads not routed by default, calls not replayed, and the counts."""
    lines = []
    for name, entry in shown.items():
        if entry["verdict"] != STRICT:
            lines.append(f"{name}: {entry['verdict']}: {entry['first']}")
            if "within_all" in entry:
                lines.append(f"{name}: FAILED within all conditions: {entry['within_all']}")
        elif "only" in entry:
            inside = f" ({entry['inside']} cases)" if "inside" in entry else ""
            lines.append(
                f"{name}: STRICT within {_within(entry)}{inside}; outside: {entry['first']}"
            )
        if "sizes" in entry:
            ranges = (
                f"{argument} {kinds['elements']}" for argument, kinds in entry["sizes"].items()
            )
            lines.append(f"{name}: elements at which it was verified: {'; '.join(ranges)}")
        if "beyond" in entry:
            lines.append(f"{name}: wrong beyond these sizes: {entry['beyond']}")
        if "declines" in entry:
            told = f"declines calls, {entry['declined']} cases"
            lines.append(f"{name}: {told}: {entry['declines']}")
        lines += [f"{name}: not replayed: {reason}" for reason in entry.get("not_replayed", [])]
    partly = sum(bool(e.get("not_replayed")) and e["replayed"] > 0 for e in shown.values())
    wholly = sum(not e.get("not_replayed") and e.get("replayed", 0) > 0 for e in shown.values())
    never = sum(bool(e.get("not_replayed")) and e["replayed"] == 0 for e in shown.values())
    lines += _counts(shown)
    lines.append(f"replayed: {wholly} always, {partly} for some arguments, {never} never")
    return lines


def _within(entry: dict[str, Any]) -> str:
    return ", ".join(entry["only"])


def _counts(shown: Verdicts) -> list[str]:
    """The number of overloads by verdict; also on the database's own samples alone where those are recorded."""

    def told(kind: str) -> str:
        counts = Counter(entry[kind] for entry in shown.values() if kind in entry)
        return ", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in (*ORDER, UNTESTED))

    within = sum(entry["verdict"] == STRICT and "only" in entry for entry in shown.values())
    lines = [told("verdict") + (f" ({within} of the STRICT within conditions)" if within else "")]
    if any("plain" in entry for entry in shown.values()):
        lines.append(f"on the database's own samples alone: {told('plain')}")
    return lines


class _Recorded:
    """The part of the command that runs recorded calls. Raises OSError and ValueError for what is no record."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        paths = options.record or ([] if options.no_records else files.shipped())
        calls = files.merged(call for path in paths for call in files.read(path))
        usable = {n for n in implementations.registered() if implementations.usable(n)}
        self.calls = [
            call
            for call in calls
            if call.overload in usable and matches(call.overload, options.ops)
        ]
        self._how = verifying.How(
            options.every_config, options.sanitizer, interpreted.wanted(), options.each
        )
        self._digest = verifying.digest(self.calls, self._how)
        self.told: Verdicts = {}

    def completed(
        self,
        entries: Verdicts,
        seconds: float,
        kept: Callable[[Verdicts], None],
        stop: Callable[[], bool],
    ) -> Verdicts:
        """The entries of a table that recorded calls change; those they were verified by before stay.

        Only what is right by the samples can serve. Without samples of this run that is not known of all.
        """
        found: Verdicts = {}

        def told(done: int, total: int, name: str, one: dict[str, Any]) -> None:
            self.told[name] = one
            found[name] = verifying.merged(
                name, entries.get(name), one, self._digest, tables.chip()
            )
            calls = f"{one['calls']} calls"
            why = f": {one['first']}" if one.get("first") else ""
            line = f"[{done}/{total}] {name}, recorded: {one['verdict']} in {calls}{why} ({one['seconds']} s)"
            print(line, file=sys.stderr, flush=True)
            kept(found)

        todo, jobs = self._todo(entries), self._options.jobs
        try:
            verifying.verify(todo, jobs, self._how, seconds, told, stop)
        except KeyboardInterrupt:
            print("interrupted: what was not reached is as it was", file=sys.stderr)
        return found

    def _todo(self, entries: Verdicts) -> list[Call]:
        """The calls whose overloads may still change: what is FAILED stays so, whatever other calls tell."""
        unknown = {"verdict": UNTESTED}
        worth = (STRICT, BASIC, UNTESTED) if self._options.record else (STRICT, BASIC)
        return [
            call
            for call in self.calls
            if (entry := entries.get(call.overload, unknown)).get("verdict") in worth
            and entry.get("records", {}).get("digest") != self._digest
        ]

    def alone(self, stop: Callable[[], bool]) -> int:
        """Verify nothing else, and complete the table that the plan reads, or `--out`."""
        options = self._options
        if not self.calls:
            print("error: none of FlagGems' overloads is called in these records", file=sys.stderr)
            return 1
        path = tables.path_for("verdicts", options.out, whole=True)
        assert path is not None, "the whole has a place"
        try:
            table = dict(tables.current(options.out) or tables.table({}, **_about(None)))
        except RuntimeError as error:
            raise RuntimeError(
                f"{path} cannot be completed: {error}; remove it, or name another file with --out"
            ) from error
        entries: Verdicts = dict(table.pop("overloads"))
        if resumed := options.resume and tables.partial(path).is_file():
            partly = tables.continued(path, **table)
            entries |= {name: entry for name, entry in partly.items() if not _cut(entry)}
        done = (lambda name: True) if options.resume else (lambda name: name != "records")
        before = {
            overload: {name: value for name, value in entry.items() if done(name)}
            for overload, entry in entries.items()
        }
        todo = {call.overload for call in self._todo(before)}
        known = {
            overload: _known(entries[overload])
            for overload in sorted({call.overload for call in self.calls} - todo)
        }
        changed: Verdicts = {}

        def kept(some: Verdicts) -> None:
            tables.write(tables.partial(path), {**table, "overloads": {**entries, **some}})

        if todo:
            with redirect_stdout(sys.stderr):
                torch.set_num_threads(1)
                package.load_before_forking()
                _require_device()
                changed = self.completed(before, options.seconds, kept, stop)
        else:
            print("there is nothing left to do: the table tells of these calls", file=sys.stderr)
        entries |= changed
        if stop():
            tables.keep_partial(path, entries, **table)
        elif changed or resumed:
            tables.write(path, {**table, "overloads": entries})
            tables.partial(path).unlink(missing_ok=True)
            print(f"wrote {path}", file=sys.stderr)
        found = {**known, **self.told}
        self._tell(found)
        if not stop():
            self._tell_rest(found, entries, path)
        return 1 if any(one["verdict"] == FAILED for one in found.values()) else 0

    def _tell(self, told: Verdicts) -> None:
        """What is known of the overloads that the records call."""
        if self._options.json:
            print(json.dumps(told))
            return
        for name, one in told.items():
            before = " before" if "before" in one else ""
            calls = f" in {one['calls']} calls" if "calls" in one else ""
            why = f": {one['first']}" if one.get("first") else ""
            print(f"{name}: {one['verdict']}{before}{calls}{why}")
        print(*_counts(told), sep="\n")

    def _tell_rest(self, told: Verdicts, entries: Verdicts, path: Path) -> None:
        """What these calls alone do not decide, with the next step."""
        to = sys.stderr if self._options.json else sys.stdout
        failed = [
            name for name, one in told.items() if one["verdict"] == FAILED and "before" in one
        ]
        right = [name for name, one in told.items() if one["verdict"] in (STRICT, BASIC)]
        unknown = [name for name in right if entries[name]["verdict"] == UNTESTED]
        alone = [name for name in unknown if entries[name]["first"] == verifying.NO_SAMPLES]
        for name in unknown:
            if name not in alone:
                why = entries[name]["first"]
                print(f"{name} stays UNTESTED, and the policy does not take it: {why}", file=to)
        for names, what in (
            (failed, "were FAILED before, and did not run; this verifies them anew:"),
            (
                alone,
                "are right in these calls, and the policy takes none before its samples are verified, by this command "
                "and these records after it:",
            ),
        ):
            if names:
                # A table that was made otherwise, or is the shipped one, would lose its other entries.
                kept = tables.made_alike(path, **_about(None))
                some = f" --ops {shlex.quote(','.join(names))}" if kept else ""
                out = f" --out {shlex.quote(str(path))}" if kept or self._options.out else ""
                print(f"{len(names)} overloads {what} flagos verify{some}{out}", file=to)


def _known(entry: dict[str, Any]) -> dict[str, Any]:
    """What a table tells of an overload's recorded calls, which do not run again."""
    if entry["verdict"] == FAILED:
        return {"verdict": FAILED, "first": entry["first"], "before": True}
    records = entry["records"]
    verdict = records.get("verdict", entry["verdict"])  # tables of before had none
    return {"verdict": verdict, "calls": records["calls"], "before": True}


def _about(samples: int | None) -> dict[str, Any]:
    """How a table is made, beside what all tables have."""
    return {"triton": version_of("triton"), "samples": samples}


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos verify`."""
    conditions = "\n".join(f"  {name:13}{means}" for name, means in envelope.CONDITIONS.items())
    parser = argparse.ArgumentParser(
        prog="flagos verify",
        description=__doc__,
        epilog=f"conditions on the arguments of a call, the simplest first:\n{conditions}\n\n"
        "`flagos explain OP` tells which of them a kernel that is routed serves calls within.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ops", default="*", help="shell patterns of overloads: 'add*,mm'")
    parser.add_argument("--jobs", type=at_least_one, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument(
        "--samples",
        type=at_least_one,
        help="of each operator and type (default: all, and fewer where many call an overload)",
    )
    parser.add_argument(
        "--seconds", type=not_negative, default=float("inf"), help="stop after so long"
    )
    parser.add_argument("--each", type=not_negative, default=_EACH, help="seconds for one overload")
    parser.add_argument(
        "--configs",
        type=at_least_one,
        default=_CONFIGS,
        help="of a kernel that is tuned, measured before one serves (default: %(default)s)",
    )
    parser.add_argument("--resume", action="store_true", help="continue the table that is there")
    parser.add_argument(
        "-o", "--out", type=Path, help="the table; by default where the plan reads it"
    )
    parser.add_argument("--json", action="store_true", help="print the table, too")
    parser.add_argument("--show", action="store_true", help="tell the table; run nothing")
    parser.add_argument(
        "--record",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="verify the calls of these records alone",
    )
    parser.add_argument(
        "--no-records", action="store_true", help="leave out the records that flagos ships"
    )
    parser.add_argument(
        "--every-config",
        action="store_true",
        help="run recorded calls by every configuration of a tuned kernel",
    )
    parser.add_argument(
        "--sanitizer", action="store_true", help="run recorded calls under compute-sanitizer, too"
    )
    options = parser.parse_args(arguments)
    if options.out is not None:
        output_files.require_writable(options.out, "table.json")
    if options.show:
        return _show(options.ops, options.json)
    if options.sanitizer and (reason := sanitizer.missing()):
        print(f"error: {reason}", file=sys.stderr)
        return 1
    try:
        _require_usable()
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        recorded = _Recorded(options)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    about = _about(options.samples)
    path = tables.path_for("verdicts", options.out, options.ops == "*")

    def told(done: int, total: int, name: str, verdict: dict[str, Any]) -> None:
        why = f"  {verdict['first']}" if verdict["verdict"] in (FAILED, UNTESTED) else ""
        if verdict["verdict"] == STRICT and "only" in verdict:
            why = f"  within {_within(verdict)}"
        line = f"[{done}/{total}] {name}: {verdict['verdict']}{why} ({verdict['seconds']} s)"
        print(line, file=sys.stderr, flush=True)

    def kept(verdicts: Verdicts) -> None:
        if path is not None:
            tables.write(tables.partial(path), tables.table({**known, **verdicts}, **about))

    began = time.monotonic()
    with one_interrupt() as interrupted:
        try:
            if options.record:
                return recorded.alone(interrupted)
            known = {}
            if options.resume and path is not None:
                known = tables.continued(path, **about)
                about |= tables.carried(tables.to_continue(path))
            with redirect_stdout(sys.stderr):  # FlagGems prints while it is imported
                verdicts = verify(
                    options.ops,
                    options.jobs,
                    options.samples,
                    told,
                    options.seconds * (_OF_SAMPLES if recorded.calls else 1),
                    options.each,
                    known,
                    kept,
                    interrupted,
                    options.configs,
                )
                left = options.seconds - (time.monotonic() - began)
                verdicts |= recorded.completed(
                    verdicts, left, lambda some: kept({**verdicts, **some}), interrupted
                )
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        every = {**known, **verdicts}
        if interrupted():
            table = tables.keep_partial(path, every, **about)
        else:
            reached = {name for name, entry in every.items() if not _cut(entry)}
            complete = all(entry.get("first") != _NO_TIME for entry in verdicts.values())
            table = tables.keep(path, every, reached, complete, **about)
    if options.json:
        print(json.dumps(table))
    else:
        print(*_counts(verdicts), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

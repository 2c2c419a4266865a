"""The part of `flagos verify` that runs recorded calls."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

from torch_fl.flaggems import implementations, interpreted, package, table_file, tables
from torch_fl.flaggems.table_file import BASIC, FAILED, STRICT, UNTESTED, Verdict
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems.recorded import verifying
from torch_fl_tools.flaggems.recorded.result import Result, Results
from torch_fl_tools.flaggems.verify import requirements
from torch_fl_tools.flaggems.verify.entries import Verdicts, about, is_cut
from torch_fl_tools.flaggems.verify.summary import counts
from torch_fl_tools.records import files
from torch_fl_tools.records.facts import Call


class Recorded:
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
        self.results: Results = {}

    def completed(
        self,
        entries: Verdicts,
        seconds: float,
        on_entries: Callable[[Verdicts], None],
        stop: Callable[[], bool],
    ) -> Verdicts:
        """The entries of a table that recorded calls change; those they were verified by before stay.

        Only what is right by the samples can serve. Without samples of this run that is not known of all.
        """
        found: Verdicts = {}

        def on_progress(done: int, total: int, name: str, one: Result) -> None:
            self.results[name] = one
            found[name] = verifying.merged(
                name, entries.get(name), one, self._digest, tables.chip()
            )
            calls = f"{one['calls']} calls"
            why = f": {one['first']}" if one.get("first") else ""
            line = f"[{done}/{total}] {name}, recorded: {one['verdict']} in {calls}{why} ({one['seconds']} s)"
            print(line, file=sys.stderr, flush=True)
            on_entries(found)

        todo, jobs = self._todo(entries), self._options.jobs
        try:
            verifying.verify(todo, jobs, self._how, seconds, on_progress, stop)
        except KeyboardInterrupt:
            print("interrupted: what was not reached is as it was", file=sys.stderr)
        return found

    def _todo(self, entries: Verdicts) -> list[Call]:
        """The calls whose overloads may still change: what is FAILED stays so, whatever other calls tell."""
        unknown: Verdict = {"verdict": UNTESTED}
        worth = (STRICT, BASIC, UNTESTED) if self._options.record else (STRICT, BASIC)
        return [
            call
            for call in self.calls
            if (entry := entries.get(call.overload, unknown)).get("verdict") in worth
            and _digest(entry) != self._digest
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
            table: dict[str, Any] = {
                **(tables.current(options.out) or tables.table({}, **about(None)))
            }
        except RuntimeError as error:
            raise RuntimeError(
                f"{path} cannot be completed: {error}; remove it, or name another file with --out"
            ) from error
        entries: Verdicts = dict(table.pop("overloads"))
        if resumed := options.resume and table_file.partial(path).is_file():
            partly = tables.continued(path, **table)
            entries |= {name: entry for name, entry in partly.items() if not is_cut(entry)}
        before: Verdicts = {overload: {**entry} for overload, entry in entries.items()}
        if not options.resume:
            for entry in before.values():
                entry.pop("records", None)
        todo = {call.overload for call in self._todo(before)}
        known = {
            overload: _known(entries[overload])
            for overload in sorted({call.overload for call in self.calls} - todo)
        }
        changed: Verdicts = {}

        def write_partial(some: Verdicts) -> None:
            made = tables.table({**entries, **some}, **table)
            table_file.write(table_file.partial(path), made)

        if todo:
            with redirect_stdout(sys.stderr):
                torch.set_num_threads(1)
                package.load_before_forking()
                requirements.require_device()
                changed = self.completed(before, options.seconds, write_partial, stop)
        else:
            print("there is nothing left to do: the table tells of these calls", file=sys.stderr)
        entries |= changed
        if stop():
            tables.keep_partial(path, entries, **table)
        elif changed or resumed:
            table_file.write(path, tables.table(entries, **table))
            table_file.partial(path).unlink(missing_ok=True)
            print(f"wrote {path}", file=sys.stderr)
        found = {**known, **self.results}
        self._print(found)
        if not stop():
            self._print_rest(found, entries, path)
        return 1 if any(one["verdict"] == FAILED for one in found.values()) else 0

    def _print(self, results: Results) -> None:
        """Prints the results for the overloads that the records call."""
        if self._options.json:
            print(json.dumps(results))
            return
        for name, one in results.items():
            before = " before" if "before" in one else ""
            calls = f" in {one['calls']} calls" if "calls" in one else ""
            why = f": {one['first']}" if one.get("first") else ""
            print(f"{name}: {one['verdict']}{before}{calls}{why}")
        print(*counts(results), sep="\n")

    def _print_rest(self, results: Results, entries: Verdicts, path: Path) -> None:
        """Prints what these calls alone cannot decide, with the next step."""
        to = sys.stderr if self._options.json else sys.stdout
        failed = [
            name for name, one in results.items() if one["verdict"] == FAILED and "before" in one
        ]
        right = [name for name, one in results.items() if one["verdict"] in (STRICT, BASIC)]
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
                continues = tables.made_alike(path, **about(None))
                some = f" --ops {shlex.quote(','.join(names))}" if continues else ""
                out = f" --out {shlex.quote(str(path))}" if continues or self._options.out else ""
                print(f"{len(names)} overloads {what} flagos verify{some}{out}", file=to)


def _digest(entry: Verdict) -> str | None:
    """The recorded calls that the entry of a table was verified by."""
    return entry["records"]["digest"] if "records" in entry else None


def _known(entry: Verdict) -> Result:
    """The result of an overload from the table, whose recorded calls do not run again."""
    if entry["verdict"] == FAILED:
        return {"verdict": FAILED, "first": entry["first"], "before": True}
    records = entry["records"]
    verdict = records.get("verdict", entry["verdict"])  # tables of before had none
    return {"verdict": verdict, "calls": records["calls"], "before": True}  # type: ignore[typeddict-item]

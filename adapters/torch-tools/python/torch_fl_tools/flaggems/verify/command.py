"""Compares FlagGems' kernels with the native ones, on the samples of torch's operator database.

    flagos verify [--ops PATTERNS] [--jobs N] [--samples N] [--seconds N] [--each N] [--resume]
                  [--configs N] [--out FILE] [--json]
    flagos verify --record FILE ... [--every-config] [--sanitizer] [--jobs N] [--seconds N] [--each N]
    flagos verify --show [--ops PATTERNS] [--json]

Each overload has a process of its own, forked before the device is in use. The samples of its operators run twice
on flagos, on the native kernel and on FlagGems', and must agree. The verdict is STRICT if values (within torch's own
tolerances), dtype, shape, strides and the places of NaN agree; BASIC if they agree within ten times the tolerance, or
with other strides, or if the numbers are random and only their shape can be compared; FAILED otherwise. Replayed calls
are compared with calls from Python bit for bit. If conditions on the arguments (no complex numbers, no empty tensor,
...) separate right calls from wrong ones, the verdict is STRICT within them, and other calls go to the native kernel.
The samples include variations of the database's own; the table has the verdict on the latter alone, too. All samples
of an overload's own entry run; other entries that call the overload share 240 samples, with at least six each.
Overloads that their own entry does not call are called directly with its samples.

Tuned kernels, such as products, run the first configuration that fits the chip, as they do in a program, or
the fastest of the first few (`--configs`): they may have hundreds, and each takes seconds to compile.

Recorded calls of whole models (`flagos record`) run next, at their sizes and at smaller ones, on memory with red
zones. A kernel that writes outside its tensors, reads outside them and uses the values, or ends the process has
FAILED. The table notes the sizes at which all calls were right, by magnitude: `FLAGOS_FLAGGEMS=verified` serves no
others. With `--record` only the calls of these records run, and all other entries of the table stay; an overload that
is FAILED in the table does not run again, and counts as a failure. `--every-config` runs every configuration that a
tuned kernel may end up with, instead of the first. `--sanitizer` also runs each call under NVIDIA's compute-sanitizer.

Overloads that `flagos tune` measures come first, since only they can serve by default. The table is written even if
`--seconds` run out; the remaining overloads keep their verdicts from the earlier table, or are UNTESTED. During a run
and after an interrupt the results so far are in FILE.partial beside the table, which stays as it was. `--resume`
continues from there, or from the table, with overloads that had too little time. `--show` prints the table that the
plan reads, and runs nothing: every overload that is not STRICT, and every one with calls that are not replayed, each
with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from flagos.cli import output_files
from torch_fl.flaggems import envelope, table_file, tables
from torch_fl.flaggems.table_file import FAILED, STRICT, UNTESTED, Table, Verdict
from torch_fl_tools.flaggems.command import at_least_one, not_negative, one_interrupt
from torch_fl_tools.flaggems.recorded import sanitizer
from torch_fl_tools.flaggems.verify import requirements, run
from torch_fl_tools.flaggems.verify.entries import NO_TIME, Verdicts, about, is_cut
from torch_fl_tools.flaggems.verify.recorded import Recorded
from torch_fl_tools.flaggems.verify.summary import counts, show, within

_OF_SAMPLES = 0.6  # of the time, before recorded calls


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos verify`."""
    options = _parser().parse_args(arguments)
    if options.out is not None:
        output_files.require_writable(options.out, "table.json")
    if options.show:
        return show(options.ops, options.json)
    if options.sanitizer and (reason := sanitizer.missing()):
        return _error(reason)
    try:
        requirements.require_usable()
        recorded = Recorded(options)
    except (OSError, RuntimeError, ValueError) as error:
        return _error(error)
    with one_interrupt() as interrupted:
        try:
            if options.record:
                return recorded.alone(interrupted)
            return _Table(options).made(recorded, interrupted)
        except RuntimeError as error:
            return _error(error)


def _error(why: object) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 1


class _Table:
    """The table that one run makes, of what it finds and of what was there before."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._about = about(options.samples)
        self._path = tables.path_for("verdicts", options.out, options.ops == "*")
        self._known: Verdicts = {}
        if options.resume and self._path is not None:
            self._known = tables.continued(self._path, **self._about)
            self._about |= tables.carried(tables.to_continue(self._path))

    def made(self, recorded: Recorded, interrupted: Callable[[], bool]) -> int:
        """Verify, write the table, and print it or what it counts. Returns the status 0. Raises RuntimeError."""
        began, options = time.monotonic(), self._options
        with redirect_stdout(sys.stderr):  # FlagGems prints while it is imported
            verdicts = run.verify(
                options.ops,
                options.jobs,
                options.samples,
                _tell,
                options.seconds * (_OF_SAMPLES if recorded.calls else 1),
                options.each,
                self._known,
                self._keep,
                interrupted,
                options.configs,
            )
            left = options.seconds - (time.monotonic() - began)
            verdicts |= recorded.completed(
                verdicts, left, lambda some: self._keep({**verdicts, **some}), interrupted
            )
        table = self._written(verdicts, interrupted())
        if options.json:
            print(json.dumps(table))
        else:
            print(*counts(verdicts), sep="\n")
        return 0

    def _keep(self, verdicts: Verdicts) -> None:
        if self._path is not None:
            table = tables.table({**self._known, **verdicts}, **self._about)
            table_file.write(table_file.partial(self._path), table)

    def _written(self, verdicts: Verdicts, interrupted: bool) -> Table:
        every = {**self._known, **verdicts}
        if interrupted:
            return tables.keep_partial(self._path, every, **self._about)
        reached = {name for name, entry in every.items() if not is_cut(entry)}
        complete = all(entry.get("first") != NO_TIME for entry in verdicts.values())
        return tables.keep(self._path, every, reached, complete, **self._about)


def _tell(done: int, total: int, name: str, verdict: Verdict) -> None:
    """Print one line on standard error."""
    why = f"  {verdict['first']}" if verdict["verdict"] in (FAILED, UNTESTED) else ""
    if verdict["verdict"] == STRICT and "only" in verdict:
        why = f"  within {within(verdict)}"
    line = f"[{done}/{total}] {name}: {verdict['verdict']}{why} ({verdict['seconds']} s)"
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    conditions = "\n".join(f"  {name:13}{means}" for name, means in envelope.CONDITIONS.items())
    parser = argparse.ArgumentParser(
        prog="flagos verify",
        description=__doc__,
        epilog=f"conditions on the arguments of a call, the simplest first:\n{conditions}\n\n"
        "`flagos explain OP` lists the conditions within which a routed kernel serves calls.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ops", default="*", help="shell patterns of overloads: 'add*,mm'")
    parser.add_argument(
        "--jobs",
        type=at_least_one,
        default=max(1, (os.cpu_count() or 2) - 2),
        help="processes at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--samples",
        type=at_least_one,
        help="samples per operator and type (default: all, or fewer if many entries call an overload)",
    )
    parser.add_argument(
        "--seconds", type=not_negative, default=float("inf"), help="stop after this time"
    )
    parser.add_argument(
        "--each",
        type=not_negative,
        default=run.EACH,
        help="seconds for one overload; of `--seconds` that are left, those that were cut get four times as many",
    )
    parser.add_argument(
        "--configs",
        type=at_least_one,
        default=run.CONFIGS,
        help="configurations of a tuned kernel to measure (default: %(default)s)",
    )
    parser.add_argument("--resume", action="store_true", help="continue the existing table")
    parser.add_argument(
        "-o", "--out", type=Path, help="the table (default: the file that the plan reads)"
    )
    parser.add_argument("--json", action="store_true", help="also print the table")
    parser.add_argument(
        "--show", action="store_true", help="print the table that the plan reads; run nothing"
    )
    parser.add_argument(
        "--record",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="verify only the calls of these records",
    )
    parser.add_argument(
        "--no-records", action="store_true", help="skip the records that flagos ships"
    )
    parser.add_argument(
        "--every-config",
        action="store_true",
        help="run recorded calls with every configuration of a tuned kernel",
    )
    parser.add_argument(
        "--sanitizer", action="store_true", help="also run recorded calls under compute-sanitizer"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The command line of `flagos bisect`."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from flagos.cli import command_line
from flagos.cli.output import CommandError, print_json
from flagos.processes.reports import run_module
from torch_fl_tools.bisect import calls, report
from torch_fl_tools.bisect.findings import Result
from torch_fl_tools.bisect.session import Check, Session
from torch_fl_tools.bisect.state import State, fingerprint

_PLAN_SECONDS = 300.0

_DESCRIPTION = """\
Finds the smallest set of operators whose routes make a program fail, and the first call of them that differs.

The program runs repeatedly with fixed seeds, each time with some operators as they are routed and all others on
native kernels. A run fails if it ends with a status other than 0, by a signal or not in time (--timeout). With
--compare it also fails if its marks differ from those of a run with native kernels, with --nan if a mark has NaN.
"""

_EXAMPLES = """\
marks in the program:
  torch.flagos.mark("loss", loss)      # nothing happens outside of flagos bisect

examples:
  $ FLAGOS_FLAGGEMS=all flagos bisect -- python train.py
  $ flagos bisect --timeout 120 -- python train.py             # a program that hangs
  $ flagos bisect --compare native --rtol 1e-3 -- python train.py
  $ flagos bisect --compare cpu -- python train.py             # the vendor's own kernels are searched, too
  $ flagos bisect --nan --state search -- python train.py      # the same command again continues
  $ flagos bisect --repeat 5 -- python train.py                # a failure that comes and goes

The status is 0 if a set was found, and 1 if not: the program passes, fails with native kernels too, or is not
reproducible. docs/bisect.md follows a whole search.
"""


def main(arguments: list[str]) -> int:
    """Run the command."""
    own, command = command_line.split(arguments)
    options = _parser().parse_args(own)
    if not command:
        raise CommandError(
            "no program is named", "name one behind --: flagos bisect -- python train.py"
        )
    check = _check(options)
    with interruptible():
        about = fingerprint(command, asdict(check), current_plan())
        folder = options.state or Path("flagos-bisect-" + _short(about))
        state = State(folder, json.loads(json.dumps(about)))
        with state.opened():
            tell(f"searching in {folder}: {shlex.join(command)}")
            session = Session(command, check, state, tell, options.max_runs)
            try:
                result = session.run()
                calls.find_all(session, result.causes, tell)
            except KeyboardInterrupt:
                tell(f"interrupted: the same command with --state {folder} continues from here")
                raise
    _print(result, folder, options.json)
    return 0 if result.verdict == "found" else 1


def current_plan() -> dict[str, Any]:
    """The plan of operators here, and versions (`plan`), from a process of their own."""
    outcome = run_module("torch_fl_tools.bisect.plan", timeout=_PLAN_SECONDS)
    plan = outcome.report("plan")
    if plan is None:
        raise CommandError(
            f"the plan of operators cannot be made: {outcome.failure}", "run `flagos doctor`"
        )
    return plan


def _print(result: Result, folder: Path, as_json: bool) -> None:
    if as_json:
        print_json({**result.as_dict(), "state": str(folder)})
        return
    print("\n".join(report.lines(result, str(folder))))


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def _short(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: the program is ended, and the state kept."""

    def interrupted(number: int, _: Any) -> NoReturn:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupted) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _check(options: argparse.Namespace) -> Check:
    if options.compare is None and (options.rtol is not None or options.atol is not None):
        raise CommandError(
            "--rtol and --atol are tolerances of a comparison", "name one: --compare native"
        )
    return Check(
        compare=options.compare,
        nan=options.nan,
        rtol=options.rtol,
        atol=options.atol,
        timeout=options.timeout,
        repeat=options.repeat,
        random=options.random,
        exclude=options.exclude,
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flagos bisect",
        usage="flagos bisect [options] -- PROGRAM ...",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--compare",
        choices=("native", "cpu", "cuda"),
        help="marks have to agree with a run on these kernels: the vendor's, or those of one backend",
    )
    add("--rtol", type=_tolerance, help="relative tolerance of marks (default: ten times torch's)")
    add(
        "--atol",
        type=_tolerance,
        help="absolute tolerance of marks; if only one tolerance is given, the other is 0",
    )
    add("--nan", action="store_true", help="NaN in a mark is a failure")
    add("--timeout", type=seconds, metavar="SECONDS", help="a run that takes longer fails")
    add("--repeat", type=count, default=1, metavar="N", help="a set fails if one of N runs does")
    add("--random", action="store_true", help="with --compare: search random operators, too")
    add(
        "--exclude",
        type=names,
        default="",
        metavar="OPS",
        help="never search these: 'mm,*layer_norm*'",
    )
    add("--seed", type=int, default=0, help="the seed of torch, random and numpy (default: 0)")
    add(
        "--max-runs",
        type=count,
        default=100,
        metavar="N",
        help="give up after N runs (default: 100)",
    )
    add("--state", type=Path, metavar="DIR", help="the folder of the search (default: a new one)")
    add("--json", action="store_true", help="print one JSON value instead of text")
    return parser


def _tolerance(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not zero or more")
    return value


def seconds(text: str) -> float:
    """The argument of an option: a time."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than zero")
    return value


def names(text: str) -> tuple[str, ...]:
    """The argument of an option: names or patterns between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def count(text: str) -> int:
    """The argument of an option: one or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value

"""Runs circles of tests, shows what CI would run, and records what landed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from tests.circles import durations, running
from tests.circles.landings import (
    Landing,
    changed_files,
    git,
    last_runs,
    record,
    recorded,
)
from tests.circles.parts import TABLE, parse, table
from tests.circles.planning import Choice, plan

BASE = "CI_BASE"


def planned() -> tuple[list[Choice], str]:
    """The choices for this commit, and a sentence on what the change is compared with."""
    landings = recorded()
    base = os.environ.get(BASE) or (landings[-1].commit if landings else "")
    files, words = None, "no landing is on record: every part counts as touched"
    if base:
        try:
            files = changed_files(base)
            words = f"{len(files)} files differ from {base[:12]}"
        except ValueError as error:
            words = f"{error}: every part counts as touched"
    head = git("rev-parse", "HEAD").strip()
    return plan(table(), files, last_runs(landings), head), words


def show(choices: list[Choice], words: str) -> None:
    """Prints what runs, what does not, and when that last did."""
    ages = last_runs(recorded())
    print(f"\nouter circle, {table().outer_seconds} s: {words}")
    for choice in choices:
        age, date = ages.get(choice.part.name, (0, ""))
        last = f"last ran {date}, {age} landing{'s' * (age > 1)} ago" if age else "not run yet"
        mark = "run " if choice.runs else "skip"
        print(
            f"  {mark} {choice.part.name:<24} {choice.part.seconds:5d} s  {choice.reason}; {last}"
        )
    sys.stdout.flush()


def run(options: argparse.Namespace) -> int:
    """The parts of a circle, or those that are named."""
    chosen = (
        table().named(options.parts)
        if options.parts
        else [*table().circle("inner"), *(table().circle("outer") if options.all else ())]
    )
    begun = options.since or time.time()
    outcomes = []
    if options.since:
        outcomes.append(running.Outcome("setup-dev", round(time.time() - begun, 1), 0.0, True))
    outcomes += running.run(chosen, options.at_once)
    return 0 if running.report(outcomes, time.time() - begun) else 1


def ci(options: argparse.Namespace) -> int:
    """The planned parts of the outer circle."""
    choices, words = planned()
    show(choices, words)
    begun = time.time()
    outcomes = running.run([choice.part for choice in choices if choice.runs], options.at_once)
    passed = running.report(outcomes, time.time() - begun)
    show(choices, words)
    return 0 if passed else 1


def show_plan(options: argparse.Namespace) -> int:
    """What `ci` would run."""
    choices, words = planned()
    if options.json:
        inner = [part.name for part in table().circle("inner")]
        outer = [choice.part.name for choice in choices if choice.runs or options.all]
        print(json.dumps({"inner": inner, "outer": outer}))
    else:
        show(choices, words)
    return 0


def landed(options: argparse.Namespace) -> int:
    """Records a commit that landed, with what CI ran for it."""
    commit, date = git("show", "-s", "--format=%H %cs", options.commit).split()
    landings = recorded()
    if landings and landings[-1].commit == commit:
        print(f"{commit[:12]} is on record already")
        return 0
    files = changed_files(landings[-1].commit, commit) if landings else None
    then = parse(git("show", f"{commit}:{TABLE}"))
    choices = plan(then, files, last_runs(landings), commit)
    ran = sorted(choice.part.name for choice in choices if choice.runs)
    record(Landing(commit, date, ran))
    print(f"recorded {commit[:12]}: CI ran {', '.join(ran)}")
    return 0


def times(options: argparse.Namespace) -> int:
    """Where the time went."""
    running.report(running.saved())
    print(durations.table(options.longest))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.circles", description=__doc__)
    together = argparse.ArgumentParser(add_help=False)
    together.add_argument(
        "-j",
        "--at-once",
        type=int,
        default=running.AT_ONCE,
        metavar="N",
        help="parts at a time (2)",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser(
        "run", parents=[together], help="run the inner circle, or the parts that are named"
    )
    one.add_argument("parts", nargs="*", metavar="PART", help="a target of the Makefile")
    one.add_argument("--all", action="store_true", help="the outer circle, too")
    one.add_argument("--since", type=float, help="when set-up began, in seconds of Unix time")
    one.set_defaults(run=run)
    one = commands.add_parser(
        "ci",
        parents=[together],
        help="run the parts of the outer circle that the plan has for this commit",
    )
    one.set_defaults(run=ci)
    one = commands.add_parser(
        "plan", help=f"show what `ci` would run; {BASE}=COMMIT names what the change begins with"
    )
    one.add_argument("--json", action="store_true", help="names alone, for a matrix of jobs")
    one.add_argument("--all", action="store_true", help="with --json: all of the outer circle")
    one.set_defaults(run=show_plan)
    one = commands.add_parser(
        "landed", help="record the last landing: the next change begins there, and turns go on"
    )
    one.add_argument("commit", metavar="COMMIT", help="the commit that landed")
    one.set_defaults(run=landed)
    one = commands.add_parser("times", help="show where the time of the last runs went")
    one.add_argument("--longest", type=int, default=40, metavar="N", help="tests shown (40)")
    one.set_defaults(run=times)
    options = parser.parse_args()
    try:
        return int(options.run(options))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

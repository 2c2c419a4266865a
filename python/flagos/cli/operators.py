"""``flagos ops`` and ``flagos explain``."""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase

from flagos.cli.output import (
    CommandError,
    Commands,
    add_command,
    print_json,
    print_table,
    printable,
)
from flagos.loading import load_adapters
from flagos.plan_entry import PlanEntry

OPS = """
Imports the adapters that are installed, since they register the operators.

examples:
  $ flagos ops --filter 'aten::add*'
  $ flagos ops --backend flaggems --json
  $ FLAGOS_OP_mm=cpu flagos ops --filter aten::mm
  $ flagos ops --lock plan.lock            # and later, to refuse any other plan:
  $ flagos ops --check-lock plan.lock
"""

EXPLAIN = """
Shows the setting that decided (a line of a file, a variable, a call) and why every other implementation lost.
For a kernel that was verified (`flagos verify`) it shows the verdict. If the verdict holds only for some
arguments, it shows the calls that the kernel serves; the native kernel serves all others.

examples:
  $ flagos explain aten::mm
  $ FLAGOS_OP_add__Tensor=cpu flagos explain add.Tensor
"""


def add_ops_to(commands: Commands) -> None:
    """Adds `flagos ops`."""
    parser = add_command(
        commands,
        "ops",
        ops,
        summary="list the operators and which implementation serves each",
        details=OPS,
    )
    parser.add_argument("--filter", metavar="PATTERN", help="part of a name, or a pattern with *")
    parser.add_argument(
        "--backend",
        metavar="B",
        help="only operators that this backend, vendor or implementation serves",
    )
    parser.add_argument("--lock", metavar="FILE", help="write the plan to this lock file")
    parser.add_argument(
        "--check-lock", metavar="FILE", help="fail with the differences from this lock file"
    )


def add_explain_to(commands: Commands) -> None:
    """Adds `flagos explain`."""
    parser = add_command(
        commands,
        "explain",
        explain,
        summary="explain which implementation of an operator runs, and why",
        details=EXPLAIN,
    )
    parser.add_argument("operator", help="for example aten::mm, or add.Tensor")


def ops(options: argparse.Namespace) -> int:
    """Lists operators. Returns 1 when no operator is registered at all."""
    from flagos import explanation

    adapters = load_adapters()
    entries = explanation.plan()["ops"]
    if options.check_lock is not None:
        explanation.check_lock(options.check_lock)
    if options.lock is not None:
        try:
            explanation.lock(options.lock)
        except OSError as error:
            reason = f"cannot write the lock file {options.lock}: {error.strerror}"
            raise CommandError(reason, "name another file") from error
    chosen = {
        name: entry
        for name, entry in entries.items()
        if _matches(name, options.filter)
        and (options.backend is None or options.backend in _served_by(entry))
    }
    if options.json:
        print_json({"operators": list(chosen.values()), "adapters": adapters})
    else:
        for line in _missing(adapters):
            print(printable(line), file=sys.stderr)
        if chosen:
            print_table(
                ("operator", "implementation", "backend", "decided by"),
                [
                    (
                        name,
                        _implementation(entry),
                        entry["backend"] or "-",
                        entry["decided_by"],
                    )
                    for name, entry in chosen.items()
                ],
            )
        print(f"{len(chosen)} of {len(entries)} operators")
    # A failure, because a script must not mistake it for an empty result of a filter.
    return 0 if entries else 1


def explain(options: argparse.Namespace) -> int:
    """Explains one operator."""
    from flagos import FlagosError
    from flagos import explain as explain_operator

    adapters = load_adapters(options.operator)
    try:
        explanation = explain_operator(options.operator)
    except FlagosError as error:
        # The operator may be unknown because its adapter is missing. An adapter that broke with the same
        # error is not reported a second time.
        others = [line for line in _missing(adapters) if str(error) not in line]
        raise CommandError(str(error), "; ".join(others) or None) from error
    if options.json:
        print_json(explanation.data)
    else:
        print(printable(str(explanation)))
    return 0


def _matches(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    if any(mark in pattern for mark in "*?["):
        bare = name.partition("::")[2]
        return fnmatchcase(name, pattern) or fnmatchcase(bare, pattern)
    return pattern in name


def _implementation(entry: PlanEntry) -> str:
    """The implementation that serves an operator, with the conditions on the calls it takes."""
    only = [
        condition["name"]
        for candidate in entry["candidates"]
        if candidate["chosen"]
        for condition in candidate["only"]
    ]
    winner: str = entry["winner"] or entry["route"]
    return f"{winner} (only {', '.join(only)})" if only else winner


def _served_by(entry: PlanEntry) -> set[str | None]:
    vendors = {candidate["vendor"] for candidate in entry["candidates"] if candidate["chosen"]}
    return {entry["backend"], entry["winner"], *vendors}


def _missing(adapters: dict[str, str | None]) -> list[str]:
    return [
        f"{package} is not loaded, so its operators are unknown: {reason}"
        for package, reason in adapters.items()
        if reason is not None
    ]

"""Output of commands: a table for people, one JSON value for programs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flagos.doctor.check import Check

#: The result of ``add_subparsers``, whose class is generic for type checkers only.
Commands = Any
_GAP = "  "
_COLORS = {"ok": "32", "warn": "33", "fail": "31"}


class CommandError(Exception):
    """A command failed; ``hint`` is the remedy."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.hint = hint


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    details: str,
) -> argparse.ArgumentParser:
    """Adds a command with ``--json``; ``details`` explain it and show examples."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=textwrap.dedent(details).strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value instead of text")
    parser.set_defaults(run=run)
    return parser


def printable(text: str) -> str:
    """Text with escapes for what a terminal would obey: control characters, and those that turn text around.

    Names and messages come from files and libraries.
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def print_json(value: Any) -> None:
    """Prints ``value`` as indented JSON."""
    print(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints aligned columns. On a terminal the last one wraps; in a pipe no line is cut."""
    table = [tuple(columns), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in list(zip(*table, strict=True))[:-1]]
    indent = sum(widths) + len(_GAP) * len(widths)
    room = shutil.get_terminal_size().columns - indent if sys.stdout.isatty() else 0
    for *cells, last in table:
        start = "".join(cell.ljust(width) + _GAP for cell, width in zip(cells, widths, strict=True))
        # Below 24 columns a long line reads better than a column of words.
        lines = textwrap.wrap(last, room) if room >= 24 else [last]
        print((start + (lines[0] if lines else "")).rstrip())
        for line in lines[1:]:
            print(" " * indent + line)


def print_check(check: Check) -> None:
    """Prints the result of a check, and its fix, at once."""
    label = f"{check.status.value.upper():<4}"
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        label = f"\x1b[{_COLORS[check.status.value]}m{label}\x1b[0m"
    print(f"{label}  {printable(f'{check.name}: {check.detail}')}", flush=True)
    if check.fix:
        print(f"      fix: {printable(check.fix)}", flush=True)

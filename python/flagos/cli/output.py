"""What commands print: a table for people, one JSON value for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

#: The option every command has.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]


def print_json(value: Any) -> None:
    """Prints ``value`` as indented JSON."""
    typer.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints aligned columns; on a terminal the last column wraps instead of breaking the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # A pipe has no width: lines must not be cut for the program that reads them.
    width = None if sys.stdout.isatty() else 10_000
    text = Console(width=width)
    if width is None:
        text.print(table)
        return
    with text.capture() as captured:
        text.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def fail(message: str, *, hint: str | None, as_json: bool) -> NoReturn:
    """Ends the command with status 1, saying why and what to do."""
    if as_json:
        print_json({"error": message, "hint": hint})
    else:
        typer.echo(f"error: {message}", err=True)
        if hint:
            typer.echo(f"  fix: {hint}", err=True)
    sys.exit(1)

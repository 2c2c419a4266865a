"""Command lines that have a program behind `--`."""

from __future__ import annotations

from collections.abc import Sequence


def split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The command's own arguments, and the program with its arguments: None without `--`, which may stand last."""
    given = list(arguments)
    if "--" not in given:
        return given, None
    place = given.index("--")
    return given[:place], given[place + 1 :]

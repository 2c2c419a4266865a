"""The file that a command writes once the program has ended: whether it can be, before the program runs for hours."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from flagos import whole_file
from flagos.cli.output import CommandError


class _Tried(Exception):
    """A file could be made; nothing is replaced."""


def require_writable(out: Path, default: str) -> None:
    """Raise CommandError if `out` cannot be written. `default` is the name that is proposed for a file in a folder."""
    try:
        if out.is_dir():
            raise CommandError(f"{out} is a folder", f"name a file in it: -o {out / default}")
        if out.exists() and not out.is_file():  # a device: it would be replaced by a file
            raise CommandError(f"{out} is no regular file", "name another file with -o")
        if not out.parent.is_dir():
            raise CommandError(
                f"{out.parent} is no folder, and {out} is to be written there",
                "make the folder, or name another file with -o",
            )
        with suppress(_Tried), whole_file.replacing(out):
            raise _Tried
    except OSError as error:
        raise cannot_be_written(out, error) from error


def cannot_be_written(out: Path, error: OSError) -> CommandError:
    """The error of a command for such a file."""
    return CommandError(
        f"{out} cannot be written: {error.strerror or error}", "name another file with -o"
    )

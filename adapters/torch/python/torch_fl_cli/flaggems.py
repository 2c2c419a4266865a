"""`flagos verify`, `tune`, `record` and `pack`: FlagGems' kernels verified, measured and packed."""

from __future__ import annotations

from torch_fl_cli import registered


def verify(arguments: list[str]) -> int:
    """Compares FlagGems' kernels with the native ones."""
    registered.require()
    from torch_fl.flaggems import verify as command

    return int(command.main(arguments))


def tune(arguments: list[str]) -> int:
    """Measures FlagGems' kernels against the native ones."""
    registered.require()
    from torch_fl.flaggems import tune as command

    return int(command.main(arguments))


def record(arguments: list[str]) -> int:
    """Writes the distinct operator calls of a program to a file."""
    registered.require()
    from torch_fl.records import command

    return int(command.main(arguments))


def pack(arguments: list[str]) -> int:
    """Compiles FlagGems' verified kernels for the calls of recorded programs, into one file."""
    registered.require()
    from torch_fl.flaggems.packs import command

    return int(command.main(arguments))

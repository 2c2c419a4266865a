"""The commands of this wheel, as their entry points name them. Each imports its modules when it runs."""

from __future__ import annotations

from torch_fl_tools import registered


def verify(arguments: list[str]) -> int:
    """Compares FlagGems' kernels with the native ones."""
    registered.require()
    from torch_fl_tools.flaggems.verify import command

    return command.main(arguments)


def tune(arguments: list[str]) -> int:
    """Measures FlagGems' kernels against the native ones."""
    registered.require()
    from torch_fl_tools.flaggems import tune as command

    return command.main(arguments)


def record(arguments: list[str]) -> int:
    """Writes the distinct operator calls of a program to a file."""
    registered.require()
    from torch_fl_tools.records import command

    return command.main(arguments)


def pack(arguments: list[str]) -> int:
    """Compiles FlagGems' verified kernels for the calls of recorded programs, into one file."""
    registered.require()
    from torch_fl_tools.flaggems.packs import command

    return command.main(arguments)


def bisect(arguments: list[str]) -> int:
    """Finds the operators whose routes make a program fail. Imports no torch: every run is a process of its own."""
    from torch_fl_tools.bisect import command

    return command.main(arguments)


def report(arguments: list[str]) -> int:
    """Runs a program and writes a page about it. Imports no torch; returns the program's status."""
    from torch_fl_tools.report import command

    return command.main(arguments)


def accuracy(arguments: list[str]) -> int:
    """Judges the routes of a program by what it yields. Its own process has no device: every run is one of its own."""
    from torch_fl_tools.accuracy import command

    return command.main(arguments)

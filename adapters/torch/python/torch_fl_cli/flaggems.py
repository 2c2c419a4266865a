"""`flagos verify`, `flagos tune` and `flagos record`: verdicts and times of FlagGems' kernels, and calls."""

from __future__ import annotations


def verify(arguments: list[str]) -> int:
    """Compares FlagGems' kernels with the native ones."""
    from torch_fl.flaggems import verify as command

    return int(command.main(arguments))


def tune(arguments: list[str]) -> int:
    """Measures FlagGems' kernels against the native ones."""
    from torch_fl.flaggems import tune as command

    return int(command.main(arguments))


def record(arguments: list[str]) -> int:
    """Writes the distinct operator calls of a program to a file."""
    from torch_fl.records import command

    return int(command.main(arguments))

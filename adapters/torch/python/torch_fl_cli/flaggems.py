"""`flagos verify` and `flagos tune`: verdicts and times of FlagGems' kernels on this chip."""

from __future__ import annotations


def verify(arguments: list[str]) -> int:
    """Compares FlagGems' kernels with the native ones."""
    from torch_fl.flaggems import verify as command

    return int(command.main(arguments))


def tune(arguments: list[str]) -> int:
    """Measures FlagGems' kernels against the native ones."""
    from torch_fl.flaggems import tune as command

    return int(command.main(arguments))

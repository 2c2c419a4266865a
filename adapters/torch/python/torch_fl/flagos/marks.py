"""Marked places of a program, whose values `flagos bisect` compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_taken: Callable[[str, Any], None] | None = None


def mark(name: str, value: Any) -> None:
    """Mark a place of the program, and what it yields there, for `flagos bisect --compare` and `--nan`.

    `value` is a tensor of any shape and dtype, a number, or a nest of lists, tuples and dicts of them. The n-th
    mark of a name is compared with the n-th mark of this name in another run. Outside of `flagos bisect` nothing
    is done.
    """
    if _taken is not None:
        _taken(name, value)


def take(taken: Callable[[str, Any], None] | None) -> None:
    """Call `taken(name, value)` for every mark from now on."""
    global _taken
    _taken = taken

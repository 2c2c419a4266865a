"""Delta debugging: the fewest steps that still show a difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def reduce(items: Sequence[T], shows: Callable[[list[T]], bool], tries: int = 400) -> list[T]:
    """The shortest list found by leaving items out, of which ``shows`` still holds.

    Without any item of the result it no longer holds, unless ``tries`` were not enough.
    """
    kept = list(items)
    size = max(1, len(kept) // 2)
    while tries > 0:
        start, smaller = 0, False
        while start < len(kept) and tries > 0:
            fewer = kept[:start] + kept[start + size :]
            tries -= 1
            if fewer and shows(fewer):
                kept, smaller = fewer, True
            else:
                start += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2)
    return kept

"""Delta debugging: the smallest sets of items that make a program fail. It knows nothing of programs.

A set fails or passes. The search takes for granted that the empty set passes, and that some given set fails. If more
items never heal a failure, what it finds is minimal: a set of m items among n takes about m·log2(n) + m tests, where
halving (ddmin) would take twice that for one item. If more items may heal one, each set found still fails as a
whole, and passes without any one of its items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Fails = Callable[[frozenset[str]], bool]


class Search:
    """A search among `items`, in the order of suspicion. `fails` is asked for each set once."""

    def __init__(self, items: Sequence[str], fails: Fails) -> None:
        if len(set(items)) != len(items):
            raise ValueError("the items of a search differ from each other")
        self._items = tuple(items)
        self._ask = fails
        self._known: dict[frozenset[str], bool] = {frozenset(): False}
        self._left = 0

    @property
    def left(self) -> int:
        """About how many tests are still to come, if what is searched is one item."""
        return self._left

    def know(self, some: frozenset[str], fails: bool) -> None:
        """Take the answer for a set from elsewhere."""
        self._known[some] = fails

    def causes(self) -> list[list[str]]:
        """Sets without a common item, each of which fails by itself; without all of them the rest passes.

        None if the set of all items passes.
        """
        found: list[list[str]] = []
        rest = list(self._items)
        self._left = _tests(len(rest))
        while self._fails(rest):
            cause = self._minimal(rest)
            found.append(cause)
            rest = [item for item in rest if item not in cause]
        return found

    def _fails(self, some: Sequence[str]) -> bool:
        key = frozenset(some)
        if key not in self._known:
            self._known[key] = self._ask(key)
            self._left = max(0, self._left - 1)
        return self._known[key]

    def _minimal(self, items: list[str]) -> list[str]:
        """A minimal set among `items`, which fail.

        The shortest beginning of the items that fails ends with an item that is needed. With the items found so far
        before it, the next is found among those of the beginning, until those found fail alone.
        """
        found: list[str] = []
        end = len(items)
        while not self._fails(found):
            begin = 0
            while end - begin > 1:
                self._left = _tests(end - begin)
                middle = (begin + end) // 2
                if self._fails(found + items[:middle]):
                    end = middle
                else:
                    begin = middle
            end -= 1
            found.append(items[end])
            self._left = 2
        return self._without_spare(found)

    def _without_spare(self, found: list[str]) -> list[str]:
        for item in found:
            fewer = [one for one in found if one != item]
            if self._fails(fewer):
                return self._without_spare(fewer)
        return found


def _tests(items: int) -> int:
    """Tests for one item among `items`: the halvings, the item alone, and the rest without it."""
    return math.ceil(math.log2(max(1, items))) + 2

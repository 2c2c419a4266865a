"""Delta debugging over sets, without a program: what it finds is right, minimal and found in few tests."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_fl_tools.bisect.search import Search


class Program:
    """Fails if all items of one of the causes are there."""

    def __init__(self, *causes: set[str]) -> None:
        self.causes = [frozenset(cause) for cause in causes]
        self.asked: list[frozenset[str]] = []

    def __call__(self, some: frozenset[str]) -> bool:
        self.asked.append(some)
        return any(cause <= some for cause in self.causes)


def items(count: int) -> list[str]:
    return [f"op{number}" for number in range(count)]


def searched(count: int, *causes: set[str]) -> tuple[list[set[str]], int]:
    """The causes that are found, and the tests it took, if the set of all items is known to fail."""
    program = Program(*causes)
    search = Search(items(count), program)
    search.know(frozenset(items(count)), True)
    return [set(cause) for cause in search.causes()], len(program.asked)


@pytest.mark.parametrize("count", [1, 2, 3, 31, 64, 100, 128])
def test_one_among_many_takes_nine_tests(count: int) -> None:
    """With three runs for the baselines, twelve."""
    for place in {0, 1, count // 2, count - 1} & set(range(count)):
        found, tests = searched(count, {f"op{place}"})
        assert found == [{f"op{place}"}]
        assert tests <= math.ceil(math.log2(count)) + 2 <= 9


@pytest.mark.parametrize("count", [2, 10, 128, 300])
def test_two_that_fail_together_take_27_tests(count: int) -> None:
    """With three runs for the baselines, thirty."""
    places = sorted({0, 1, count // 3, count - 2, count - 1})
    for one, other in itertools.combinations(places, 2):
        found, tests = searched(count, {f"op{one}", f"op{other}"})
        assert found == [{f"op{one}", f"op{other}"}]
        assert tests <= 27, (one, other)


@pytest.mark.parametrize("count", [2, 10, 128, 300])
def test_two_of_which_either_fails_take_27_tests(count: int) -> None:
    places = sorted({0, 1, count // 3, count - 2, count - 1})
    for one, other in itertools.combinations(places, 2):
        found, tests = searched(count, {f"op{one}"}, {f"op{other}"})
        assert sorted(map(sorted, found)) == sorted([[f"op{one}"], [f"op{other}"]])
        assert tests <= 27, (one, other)


def test_nothing_is_found_where_all_pass() -> None:
    program = Program()
    assert Search(items(9), program).causes() == []
    assert len(program.asked) == 1


causes = st.lists(st.sets(st.integers(0, 39), min_size=1, max_size=4), min_size=1, max_size=4)


@given(causes)
def test_what_is_found_fails_is_minimal_and_leaves_nothing(drawn: list[set[int]]) -> None:
    program = Program(*({f"op{n}" for n in cause} for cause in drawn))
    search = Search(items(40), program)
    found = search.causes()
    assert found
    for cause in found:
        assert program(frozenset(cause))
        for item in cause:
            assert not program(frozenset(cause) - {item})
    assert not program(frozenset(items(40)) - {item for cause in found for item in cause})
    assert sum(map(len, found)) == len({item for cause in found for item in cause})


@given(st.lists(st.booleans(), min_size=256, max_size=256))
def test_each_set_fails_and_needs_its_items_where_items_heal(answers: list[bool]) -> None:
    """Any function of the set, in which more items may pass where fewer fail."""
    names = items(8)

    def fails(some: frozenset[str]) -> bool:
        return bool(some) and answers[sum(1 << names.index(item) for item in some)]

    for cause in Search(names, fails).causes():
        assert fails(frozenset(cause))
        assert not any(fails(frozenset(cause) - {item}) for item in cause)


@given(causes)
def test_no_set_is_asked_for_twice(drawn: list[set[int]]) -> None:
    program = Program(*({f"op{n}" for n in cause} for cause in drawn))
    Search(items(40), program).causes()
    assert len(program.asked) == len(set(program.asked))
    assert frozenset() not in program.asked


def test_how_many_are_left_is_told() -> None:
    report = []
    search: Search

    def fails(some: frozenset[str]) -> bool:
        report.append(search.left)
        return "op77" in some

    search = Search(items(128), fails)
    search.know(frozenset(items(128)), True)
    search.causes()
    assert report == sorted(report, reverse=True)
    assert report[0] == len(report)


def test_items_differ() -> None:
    with pytest.raises(ValueError, match="differ"):
        Search(["a", "a"], lambda _: True)

"""Routes of the program: contexts that nest and overlap, calls, strict mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import flagos
from flagos import _core


@pytest.fixture
def op(namespace: str) -> Iterator[str]:
    """An operator with three implementations; `first` wins when nothing else is said."""
    name = f"{namespace}::op"
    _core.register_impl(name, f"{namespace}.first", "flagos")
    _core.register_impl(name, f"{namespace}.second", "vendor", vendor="host", backend="cpu")
    _core.register_impl(name, f"{namespace}.third", "reference")
    yield name
    flagos.clear_route()


def winner(op: str) -> str:
    """The name that follows the namespace in the winner's id."""
    chosen = flagos.explain(op).data["winner"]
    return "blocked" if chosen is None else str(chosen).rpartition(".")[2]


def test_a_region_is_routed_and_left_as_it_was(op: str) -> None:
    assert winner(op) == "first"
    with flagos.route({op: "cpu"}):
        assert winner(op) == "second"
        assert "context" in flagos.explain(op).data["decided_by"]
        with flagos.route({op: "reference"}):
            assert winner(op) == "third"
        assert winner(op) == "second"
    assert winner(op) == "first"


def test_a_region_that_is_entered_again_ends_before_the_one_around_it(op: str) -> None:
    again = flagos.route({op: "cpu"})
    with again, flagos.route({op: "reference"}):
        with again:
            assert winner(op) == "second"
        assert winner(op) == "third"
    assert winner(op) == "first"


def test_an_exception_ends_the_region_too(op: str) -> None:
    with pytest.raises(KeyError), flagos.route({op: "cpu"}):
        raise KeyError
    assert winner(op) == "first"


def test_alternatives_are_tried_in_order(op: str) -> None:
    with flagos.route({op: ["cuda", "reference"]}):
        assert winner(op) == "third"


def test_a_decorated_function_is_routed_while_it_runs(op: str) -> None:
    @flagos.route({op: "cpu"})
    def inside(depth: int) -> list[str]:
        return [winner(op), *(inside(depth - 1) if depth else [])]

    assert inside(2) == ["second"] * 3
    assert winner(op) == "first"


def test_nothing_usable_blocks_with_the_reason(op: str) -> None:
    with flagos.route({op: "cuda"}):
        explanation = flagos.explain(op)
        assert explanation.data["route"] == "blocked"
        assert "blocked" in str(explanation)
    assert winner(op) == "first"


def test_a_call_is_undone_by_its_own_clear(op: str) -> None:
    flagos.set_route(op, "reference")
    assert winner(op) == "third"
    assert "flagos.set_route" in flagos.explain(op).data["decided_by"]
    with flagos.route({op: "cpu"}):  # a region beats a call
        assert winner(op) == "second"
    flagos.clear_route(op)
    assert winner(op) == "first"


def test_unknown_names_change_nothing(op: str) -> None:
    flagos.plan()
    with pytest.raises(flagos.ConfigError, match="not a backend or selector") as caught:
        flagos.set_route(op, "referense")
    assert "reference" in (caught.value.hint or "")
    with (
        pytest.raises(flagos.FlagosError, match="unknown operator"),
        flagos.route({op + "x": "reference"}),
    ):
        pytest.fail("the region must not be entered")
    assert winner(op) == "first"


def test_regions_of_threads_may_overlap_and_end_in_any_order(op: str) -> None:
    """A enters, B enters, A leaves, B leaves: B's route must survive A's end."""
    entered, left = threading.Event(), threading.Event()
    seen: list[str] = []

    def b() -> None:
        with flagos.route({op: "reference"}):
            seen.append(winner(op))
            entered.set()
            left.wait(60)
            seen.append(winner(op))
        seen.append(winner(op))

    thread = threading.Thread(target=b)
    with flagos.route({op: "cpu"}):
        thread.start()
        assert entered.wait(60)
    left.set()
    thread.join()
    assert seen == ["third", "third", "first"]


def test_one_route_object_entered_by_many_threads(op: str) -> None:
    """Every pop must remove the context its own thread pushed: in the end none is left over."""
    shared = flagos.route({op: "cpu"})
    start = threading.Barrier(8)

    def work(_: int) -> set[str]:
        start.wait(60)
        seen = set()
        for _ in range(50):
            with shared:
                seen.add(winner(op))
        return seen

    with ThreadPoolExecutor(8) as pool:
        for seen in pool.map(work, range(8)):
            assert seen == {"second"}
    assert winner(op) == "first"


def test_a_context_is_popped_once(op: str) -> None:
    token = _core.push_context({op: "cpu"})
    _core.pop_context(token)
    with pytest.raises(flagos.InvalidArgumentError, match="not active"):
        _core.pop_context(token)


def test_strict_mode_is_a_region_too(op: str) -> None:
    flagos.plan()
    with flagos.strict():
        assert _core.strict_override() is True
        with pytest.raises(flagos.ConfigError, match="strict"):
            flagos.set_route(op, "cuda")
        with flagos.strict(False):
            with flagos.route({op: "cuda"}):
                assert winner(op) == "blocked"
        assert _core.strict_override() is True
    assert _core.strict_override() is None
    assert winner(op) == "first"

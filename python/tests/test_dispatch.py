"""Operators that are called from Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest

import flagos
from flagos import Operator, UnsupportedError, dispatch

_names = (f"dispatch::op{n}" for n in count())


@pytest.fixture
def operator() -> Iterator[Operator]:
    """`double`, preferred, takes numbers under 10; `sum` takes any."""
    op = Operator(next(_names))

    def double(x: int) -> int:
        if x >= 10:
            raise UnsupportedError(f"{x} is too large")
        return 2 * x

    op.offer(double, impl_id="test.double", kind="flagos")
    op.offer(lambda x: x + x, impl_id="test.sum", kind="reference")
    yield op
    op.reset()


def test_a_call_goes_where_the_plan_says(operator: Operator) -> None:
    assert operator.winner == "test.double" and operator(4) == 8
    with flagos.route({operator.name: "reference"}):
        assert operator.winner == "test.sum" and operator(4) == 8
    assert operator.winner == "test.double"
    assert operator.calls == {"test.double": 1, "test.sum": 1}


def test_calls_are_among_the_counters(operator: Operator) -> None:
    flagos.reset_counters()
    operator(1), operator(2)
    assert flagos.counters() == {operator.name: {"calls": 2, "fallbacks": 0}}
    assert dispatch.calls() == {operator.name: 2}
    flagos.reset_counters()
    assert flagos.counters() == {} and operator.calls == {}


def test_a_declined_call_is_served_by_the_next(operator: Operator) -> None:
    flagos.reset_counters()
    assert operator(12) == 24
    assert operator.calls == {"test.sum": 1}
    assert flagos.counters()[operator.name] == {"calls": 1, "fallbacks": 1}
    flagos.reset_counters()


def test_strict_mode_refuses_a_declined_call(operator: Operator) -> None:
    with flagos.strict(), pytest.raises(UnsupportedError, match=r"12 is too large.*strict mode"):
        operator(12)
    assert operator.calls == {}


def test_when_everybody_declines_all_reasons_are_told() -> None:
    op = Operator(next(_names))
    for name in ("first", "second"):

        def decline(name: str = name) -> None:
            raise UnsupportedError(f"{name} says no")

        op.offer(decline, impl_id=f"test.{name}", kind="reference")
    with pytest.raises(
        UnsupportedError, match=r"first says no; test\.second declined: second says no"
    ):
        op()
    flagos.reset_counters()


def test_an_error_is_no_refusal(operator: Operator) -> None:
    with pytest.raises(TypeError):
        operator("x", "y")
    assert operator.calls == {}


def test_what_is_unavailable_is_explained_and_never_chosen() -> None:
    op = Operator(next(_names))
    op.offer(lambda: 1, impl_id="test.absent", kind="flagos", unavailable="no chip")
    with pytest.raises(UnsupportedError, match=r"(?s)is usable:.*unavailable: no chip"):
        op()
    op.offer(lambda: 2, impl_id="test.present", kind="reference")
    assert op() == 2
    assert "unavailable: no chip" in str(flagos.explain(op.name))
    with (
        flagos.route({op.name: "impl:test.absent"}),
        pytest.raises(UnsupportedError, match="no chip"),
    ):
        op()


def test_what_is_there_on_request_needs_a_route(operator: Operator) -> None:
    operator.offer(
        lambda x: 0, impl_id="test.fast", kind="flagos", priority=9, on_request="untested"
    )
    assert operator.winner == "test.double"
    assert "untested" in str(flagos.explain(operator.name))
    with flagos.route({operator.name: "impl:test.fast"}):
        assert operator(4) == 0


def test_there_is_one_operator_of_a_name(operator: Operator) -> None:
    with pytest.raises(ValueError, match="there is an operator"):
        Operator(operator.name)


def test_registered_functions_join(operator: Operator) -> None:
    flagos.register(operator.name, lambda x: -1, impl_id="test.late", priority=9)
    assert operator.winner == "test.late" and operator(3) == -1
    flagos.unregister(operator.name, "test.late")
    assert operator.winner == "test.double" and operator(3) == 6


def test_routes_may_change_while_threads_call(operator: Operator) -> None:
    stop, wrong = threading.Event(), []

    def call() -> None:
        while not stop.is_set():
            if operator(4) != 8:
                wrong.append(operator.winner)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        with flagos.route({operator.name: "reference"}):
            assert operator.winner == "test.sum"
        assert operator.winner == "test.double"
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    served = operator.calls
    assert served.keys() <= {"test.double", "test.sum"} and sum(served.values()) > 50

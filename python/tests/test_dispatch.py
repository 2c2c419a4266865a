"""Operators that are called from Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest

import flagos
from flagos import Operator, UnsupportedError
from flagos._core import operator as native

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


def test_errors_say_what_was_declined_before(operator: Operator) -> None:
    with flagos.strict(), pytest.raises(UnsupportedError) as strict:
        operator(12)
    assert str(strict.value.__context__) == "12 is too large"

    def fail(x: int) -> int:
        raise ArithmeticError

    operator.offer(fail, impl_id="test.broken", kind="reference", priority=1)
    with pytest.raises(ArithmeticError) as failed:
        operator(12)
    assert str(failed.value.__context__) == "12 is too large"
    alone = Operator(next(_names))

    def decline() -> None:
        raise UnsupportedError("not today")

    alone.offer(decline, impl_id="test.only", kind="reference")
    with pytest.raises(UnsupportedError) as nobody:
        alone()
    assert str(nobody.value.__cause__) == "not today"
    flagos.reset_counters()


def test_keywords_reach_whoever_serves(operator: Operator) -> None:
    assert operator(x=3) == 6
    with flagos.route({operator.name: "flagos"}):
        assert operator(x=12) == 24
    assert operator.calls == {"test.double": 1, "test.sum": 1}
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


def test_what_is_there_on_request_takes_over_only_where_it_is_asked_for(operator: Operator) -> None:
    operator.offer(lambda x: 0, impl_id="test.fast", kind="vendor", vendor="acme", on_request="?")
    with flagos.route({operator.name: "flagos"}):
        assert operator(12) == 24
    with flagos.route({operator.name: "flagos|impl:test.fast"}):
        assert operator.winner == "test.double"
    flagos.reset_counters()


def test_the_log_names_who_served(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator(4)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FLAGOS_LOG_DISPATCH", "1")
    flagos.reload()  # is noticed by the next call
    operator(4), operator(12)
    served = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("[flagos dispatch]")
    ]
    name = operator.name
    assert served == [
        f"[flagos dispatch] {name} -> flagos",
        f"[flagos dispatch] {name} -> reference",
    ]
    monkeypatch.undo()
    flagos.reload()
    operator(4)
    assert capsys.readouterr().err == ""
    flagos.reset_counters()


def test_functions_are_found_by_their_id(operator: Operator) -> None:
    assert operator.implementation("test.sum")(3) == 6
    with pytest.raises(
        ValueError, match=r"no implementation test\.some, but test\.double, test\.sum"
    ):
        operator.implementation("test.some")


def test_an_operator_says_what_it_is(operator: Operator) -> None:
    assert repr(operator) == f"<operator {operator.name}>"
    assert operator.name == f"dispatch::{operator.__name__}"
    assert type(operator).__module__ == "flagos"


def test_an_adapter_may_choose_by_itself() -> None:
    asked, failures = [], []

    def resolve(op: Operator) -> Callable[..., int]:
        asked.append(op)
        op.bind(native.epoch(), int)
        return int

    def failed(
        op: Operator, target: object, error: Exception, args: object, named: object
    ) -> object:
        failures.append((target, type(error), args, named))
        return NotImplemented if args == ("x",) else -1

    op = Operator("own::number", resolve=resolve, failed=failed)
    assert [op("1"), op("2"), op("11", base=2)] == [1, 2, 3] and asked == [op]
    assert op("y") == -1
    with pytest.raises(ValueError, match="invalid literal"):
        op("x")
    assert failures == [(int, ValueError, (text,), {}) for text in "yx"]
    native.advance()
    assert op("3") == 3 and asked == [op, op]
    Operator("own::number", resolve=resolve, failed=failed)  # nobody's plan has the name
    with pytest.raises(TypeError, match="and not the plan"):
        op.offer(int, impl_id="test.int", kind="reference")
    with pytest.raises(TypeError, match="go together"):
        Operator("own::other", resolve=resolve)


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

"""Calls that are held against the conditions of an implementation, and served natively outside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import pytest
import torch

import flagos
from adapters.torch.tests import conditions_oracle
from flagos import _core
from torch_fl import python_kernels
from torch_fl.flaggems import envelope
from torch_fl.python_kernels import implementations

# Conditions are those of implementations that are given native tensors.
pytestmark = pytest.mark.needs("aliases")

aten = torch.ops.aten
ID = "test.conditions"
X = torch.linspace(-1, 1, 12).reshape(3, 4)
AT = torch.tensor([[0, 1, 2, 0]])
COMPLEX = torch.complex(X, X)


def _on(device: str, value: Any) -> Any:
    """Tensors on a device, strides and offsets kept; those that `_Here` holds stay."""
    if isinstance(value, _Here):
        return value.tensor
    if isinstance(value, torch.Tensor):
        memory = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage()).clone()
        made = torch.empty(0, dtype=value.dtype, device=device)
        there = memory.to(device).untyped_storage()
        return made.set_(there, value.storage_offset(), value.shape, value.stride())
    if isinstance(value, (list, tuple)):
        return type(value)(_on(device, element) for element in value)
    return value


class _Here:
    """A tensor of the CPU beside those of the device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


Call = tuple[str, Callable[..., Any], list[Any], dict[str, Any]]
CALLS: dict[str, Call] = {
    "plain": ("exp", aten.exp, [X], {}),
    "transposed": ("exp", aten.exp, [X.t()], {}),
    "empty": ("exp", aten.exp, [X[:0]], {}),
    "no dimension": ("exp", aten.exp, [X.sum()], {}),
    "integers": ("exp", aten.exp, [AT], {}),
    "half": ("exp", aten.exp, [X.bfloat16()], {}),
    "booleans": ("logical_not", aten.logical_not, [X > 0], {}),
    "complex": ("exp", aten.exp, [COMPLEX], {}),
    "double precision": ("exp", aten.exp, [X.double()], {}),
    "integers of 32 bits": ("exp", aten.exp, [AT.int()], {}),
    "integers as a dtype": ("sum.dim_IntList", aten.sum, [AT, [0]], {"dtype": torch.int64}),
    "rows of 12 bytes": ("exp", aten.exp, [X.t().contiguous()], {}),
    "columns of 12 bytes": ("exp", aten.exp, [X.t().contiguous().t()], {}),
    "rows of 16 bytes in halves": ("exp", aten.exp, [torch.ones(2, 8).half()], {}),
    "rows of 8 bytes in halves": ("exp", aten.exp, [torch.ones(2, 4).half()], {}),
    "a part of each row": ("exp", aten.exp, [X[:, :3]], {}),
    "a part that begins later": ("exp", aten.exp, [X[:, 1:]], {}),
    "a part that begins at a row": ("exp", aten.exp, [X[1:]], {}),
    "each other column": ("exp", aten.exp, [X[:, ::2]], {}),
    "the same row again": ("exp", aten.exp, [X[0].expand(3, 4)], {}),
    "the same number again": ("exp", aten.exp, [X[0, 0].expand(3, 4)], {}),
    "overlapping rows": ("exp", aten.exp, [X.reshape(-1).unfold(0, 8, 1)], {}),
    "one column": ("exp", aten.exp, [X[:, :1].contiguous()], {}),
    "a vector that begins later": ("exp", aten.exp, [X[0, 1:]], {}),
    "one row of a transpose": ("exp", aten.exp, [X[:, :1].t()], {}),
    "out": ("exp.out", aten.exp.out, [X], {"out": torch.zeros_like(X)}),
    "out of another layout": ("exp.out", aten.exp.out, [X[:3, :3]], {"out": X[:3, :3].t()}),
    "in place": ("exp_", aten.exp_, [X.t()], {}),
    "a number": ("add.Tensor", aten.add, [X, 2], {}),
    "a complex number": ("mul.Tensor", aten.mul, [COMPLEX, 2j], {}),
    "a complex number alone": ("mul.Tensor", aten.mul, [X, 2j], {}),
    "a tensor of the CPU": ("add.Tensor", aten.add, [X, _Here(torch.tensor(2.0))], {}),
    "alpha": ("add.Tensor", aten.add, [X, X], {"alpha": 3}),
    "a complex scalar": ("fill_.Scalar", aten.fill_, [COMPLEX, 1j], {}),
    "a complex base": ("pow.Scalar", aten.pow, [1j, X], {}),
    "an index": ("gather", aten.gather, [X, 0, AT], {}),
    "an empty index": ("gather", aten.gather, [X, 0, AT[:0]], {}),
    "what is no index": ("scatter.src", aten.scatter, [AT, 1, AT, AT], {}),
    "indices": ("index.Tensor", aten.index, [X, [None, AT[0]]], {}),
    "a mask": ("masked_fill.Scalar", aten.masked_fill, [X, X > 0, 2.0], {}),
    "a condition": ("where.self", aten.where, [X > 0, X, X], {}),
    "a list": ("cat", aten.cat, [[X, X], 0], {}),
    "a list with one that is empty": ("cat", aten.cat, [[X, X[:0]], 0], {}),
    "a list of integers": ("cat", aten.cat, [[AT, AT], 1], {}),
    "numbers in a list": ("sum.dim_IntList", aten.sum, [X, [0, 1]], {}),
    "a dtype": ("sum.dim_IntList", aten.sum, [X, [0]], {"dtype": torch.float64}),
    "a complex dtype": ("sum.dim_IntList", aten.sum, [X, [0]], {"dtype": torch.complex64}),
    "two types": ("add.Tensor", aten.add, [X, X.half()], {}),
    "a number in a tensor of another type": ("add.Tensor", aten.add, [AT, X.sum()], {}),
    "a list of two types": ("cat", aten.cat, [[X, X.half()], 0], {}),
    "the first and the last alike": ("cat", aten.cat, [[X, X.half(), X], 0], {}),
    "none for a tensor": ("clamp.Tensor", aten.clamp, [X, None, X], {}),
    "scalars in a list": ("_foreach_add.ScalarList", aten._foreach_add, [[X], [1.0]], {}),
    "complex scalars in a list": ("_foreach_mul.ScalarList", aten._foreach_mul, [[X], [1j]], {}),
}


class Spy:
    """An implementation that notes what held for the calls it is given, and leaves them to the native kernel."""

    def __init__(self, overload: str) -> None:
        self.overload = overload
        self.held: list[envelope.Holding] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        held = conditions_oracle.holding(self.overload, args, kwargs)
        assert envelope.holding(self.overload, args, kwargs) == held
        self.held.append(held)
        raise flagos.UnsupportedError("only a spy")


@contextmanager
def spying(overload: str, *only: str) -> Iterator[Spy]:
    spy = Spy(overload)
    op = f"aten::{overload}"
    flagos.register(op, spy, impl_id=ID, native=True)
    try:
        python_kernels.limit(op, ID, only)
        with flagos.route({op: f"impl:{ID}"}):
            yield spy
    finally:
        flagos.unregister(op, ID)


def called(name: str) -> None:
    """Makes a call on the device, whose results must be the CPU's whoever serves it."""
    _, call, args, kwargs = CALLS[name]

    def on(device: str) -> Any:
        return call(*_on(device, args), **{key: _on(device, kwargs[key]) for key in kwargs})

    ours, theirs = on("flagos"), on("cpu")
    for one, other in zip(_tensors(ours), _tensors(theirs), strict=True):
        assert one.device.type == "flagos"
        torch.testing.assert_close(one.cpu(), other)


def _tensors(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def held(name: str) -> envelope.Holding:
    """The conditions that hold for a call, which the oracle evaluates on the arguments of an implementation."""
    with spying(CALLS[name][0]) as spy:
        called(name)
    assert len(spy.held) == 1
    return spy.held[0]


def served_within(name: str) -> set[str]:
    """The conditions with which a call still comes to the implementation."""
    found = set()
    for condition in envelope.CONDITIONS:
        with spying(CALLS[name][0], condition) as spy:
            called(name)
        if spy.held:
            found.add(condition)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_held_against_conditions_as_by_the_oracle(name: str):
    expected = held(name)
    assert served_within(name) == expected
    with spying(CALLS[name][0], *expected) as spy:
        called(name)
    assert len(spy.held) == 1, "it is given what all its conditions hold for"
    with spying(CALLS[name][0], *envelope.CONDITIONS) as spy:
        called(name)
    assert bool(spy.held) == (expected == set(envelope.CONDITIONS)), "one that is broken is enough"


def test_the_calls_tell_every_condition_from_every_other():
    """The control: a condition that is evaluated in place of another, never or always, is found above."""
    seen = [held(name) for name in CALLS]
    for one, other in permutations(envelope.CONDITIONS, 2):
        assert any(one in holding and other not in holding for holding in seen), (one, other)


def test_a_condition_that_is_told_wrongly_is_found(monkeypatch: pytest.MonkeyPatch):
    limit = python_kernels.limit

    def another(op: str, impl_id: str, only: Any) -> None:
        limit(op, impl_id, ["nonempty" if name == "contiguous" else name for name in only])

    monkeypatch.setattr(python_kernels, "limit", another)
    assert served_within("transposed") != held("transposed")


def counted(overload: str) -> Counter[str]:
    return Counter(flagos.counters().get(f"aten::{overload}", {"calls": 0, "fallbacks": 0}))


def test_every_declined_call_is_counted_with_its_reason():
    flagos.reset_counters()
    x = X.to("flagos")
    with spying("cosh", "nonempty", "contiguous") as spy:
        for _ in range(3):
            assert x[:0].t().cosh().shape == (4, 0)
        torch.testing.assert_close(x.t().cosh().cpu(), X.t().cosh())
        assert counted("cosh") == Counter(calls=4, fallbacks=4) and not spy.held
    (record,) = [record for record in _core.fallbacks() if record["op"] == "aten::cosh"]
    assert record["count"] == 4
    assert record["reason"] == "it was verified within conditions, and not: nonempty"


def test_a_declined_call_is_an_error_in_strict_mode():
    x = X.to("flagos")
    before = counted("sinh")
    with (
        spying("sinh", "contiguous"),
        flagos.strict(),
        pytest.raises(
            NotImplementedError, match=r"refused .*within conditions, and not: contiguous"
        ),
    ):
        x.t().sinh()
    assert counted("sinh") - before == Counter(calls=1), "what is refused is no fallback"


def test_the_log_tells_who_served(run_python, native_implementations):
    script = """
import torch, flagos
from torch_fl import python_kernels
x = torch.ones(2, 3, device="flagos")
flagos.register("aten::exp", torch.exp, impl_id="mine", backend="mine", native=True)
python_kernels.limit("aten::exp", "mine", ["contiguous"])
x.exp(), x.t().exp()
"""
    lines = run_python(script, FLAGOS_LOG_DISPATCH="1").stderr.splitlines()
    report = [line.rpartition(" ")[2] for line in lines if "[flagos dispatch] exp ->" in line]
    assert len(report) == 2 and report[0] == "mine", lines
    assert f"{report[1]}.native" in native_implementations, lines


def follows(op: str) -> bool:
    """Whether the calls of `aten::exp` that are not contiguous go where the conditions of the moment say."""
    x, went = X.to("flagos").t(), []

    def outside(spy: Spy) -> bool:
        before = len(spy.held)
        x.exp()
        return len(spy.held) > before

    with spying(op) as spy:
        for only in ((), ("contiguous",), (), ("nonempty",), ("contiguous", "ordinary")):
            python_kernels.limit(f"aten::{op}", ID, only)
            went.append(outside(spy) == ("contiguous" not in only))
    return all(went)


def test_conditions_hold_from_the_next_call_on():
    assert follows("exp")


def test_conditions_that_outlive_a_change_are_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(implementations, "_attach_anew", lambda op: None)
    assert not follows("exp")


def test_conditions_are_those_of_the_implementation_that_is_routed():
    x = X.to("flagos").t()
    other = Spy("exp")
    with spying("exp", "contiguous") as spy:
        flagos.register("aten::exp", other, impl_id="test.other", native=True)
        try:
            x.exp()
            assert not spy.held and not other.held
            with flagos.route({"aten::exp": "impl:test.other"}):
                x.exp()
            assert len(other.held) == 1, "which has none"
            before = counted("exp")["fallbacks"]
            with flagos.route({"aten::exp": "vendor"}):
                x.exp()
            assert counted("exp")["fallbacks"] == before
            x.exp()
            assert not spy.held and len(other.held) == 1
        finally:
            flagos.unregister("aten::exp", "test.other")
    x.exp()
    assert counted("exp")["fallbacks"] == before + 1


def test_conditions_of_a_later_version_hold_for_no_call():
    with spying("exp", "sorted", "contiguous", "large") as spy:
        flagos.reset_counters()
        X.to("flagos").t().exp()
        X.to("flagos").exp()
    assert not spy.held
    (record,) = [record for record in _core.fallbacks() if record["op"] == "aten::exp"]
    assert record["count"] == 2 and record["reason"].endswith("not: contiguous, large, sorted")


def test_gradients_and_writes_are_those_of_the_native_kernel():
    x = X.to("flagos").requires_grad_()
    with spying("exp", "contiguous") as spy:
        x.t().exp().sum().backward()
        assert not spy.held
    torch.testing.assert_close(x.grad.cpu(), X.exp())
    y = torch.ones(3, 4, device="flagos").t()
    with spying("add_.Tensor", "contiguous") as spy:
        assert y.add_(2) is y and y._version == 1 and not spy.held
    assert y.tolist() == [[3.0] * 3] * 4


def test_threads_call_on_both_sides_of_a_condition():
    inside, outside = X.to("flagos"), X.to("flagos").t()
    before = counted("exp")
    with spying("exp", "contiguous") as spy, ThreadPoolExecutor(4) as pool:

        def calls(_: int) -> bool:
            both = [(x.exp().cpu() - x.cpu().exp()).abs().max() < 1e-6 for x in (inside, outside)]
            return all(both)

        assert all(pool.map(calls, range(200)))
    assert len(spy.held) == 200 and all("contiguous" in holding for holding in spy.held)
    assert counted("exp") - before == Counter(calls=400, fallbacks=400)  # a spy declines, too


def test_only_native_implementations_have_conditions():
    with pytest.raises(ValueError, match=r"mine of aten::exp has conditions"):
        python_kernels.register("aten::exp", "mine", torch.exp, "mine", only=["ordinary"])
    with pytest.raises(ValueError, match="no native implementation 'nobody'"):
        python_kernels.limit("aten::exp", "nobody", ["ordinary"])


def test_a_call_that_is_told_wrongly_is_an_error():
    held = torch.ops.flagos.conditions_held
    with pytest.raises(RuntimeError, match=r"torch has no operator aten::expp"):
        held("aten::expp", [], [], [], None, [])
    with pytest.raises(RuntimeError, match=r"aten::exp has no argument number 1"):
        held("aten::exp", [X], [1], [], None, [])
    with pytest.raises(RuntimeError, match=r"got 0 places of 1 tensors"):
        held("aten::exp", [X], [], [], None, [])
    assert set(held("aten::exp", [], [], [], None, [])) == set(envelope.CONDITIONS)

"""Conditions on arguments, within which a FlagGems kernel is verified and serves."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import torch_fl
from adapters.torch.tests.flaggems.served import count, on
from torch_fl.aten import routing
from torch_fl.flaggems import envelope, implementations
from torch_fl.flaggems.table_file import FAILED, STRICT, UNTESTED
from torch_fl.python_kernels import implementations as python_implementations
from torch_fl_tools.flaggems import cases, check, samples

from .database import DATABASE

WHERE = [(name, "function") for name in ("exp", "exp of complex numbers", "exp of matrices")]


def _samples(*_: Any, **__: Any) -> Any:
    yield SampleInput(torch.ones(2, 4))


def _matrices(op: Any, device: str, dtype: Any, *_: Any, **__: Any) -> Any:
    """Samples of which each but the first is outside one condition."""
    for shape in ((2, 8), (0, 8), (2, 3)):
        yield SampleInput(torch.ones(shape, dtype=dtype))


def _two(*_: Any, **__: Any) -> Any:
    yield SampleInput(torch.rand(2, 8), args=(torch.rand(2, 8),))


def _of_complex_numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.exp(torch.complex(x, x)))


@pytest.fixture(autouse=True)
def database(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {
        name: OpInfo(name, op=op, dtypes=dtypes, sample_inputs_func=samples, supports_out=False)
        for name, op, dtypes, samples in (
            (WHERE[1][0], _of_complex_numbers, {torch.float32}, _samples),
            (WHERE[2][0], torch.exp, {torch.float32, torch.int64}, _matrices),
        )
    }
    monkeypatch.setattr(cases, "database", lambda: {**DATABASE, **more})


@pytest.mark.slow
@pytest.mark.parametrize(
    "only",
    [
        list(some)
        for size in (1, 2)
        for some in combinations(
            [c for c in envelope.CONDITIONS if c not in ("ordinary", "uniform")], size
        )
    ],
    ids="+".join,
)
def test_what_is_wrong_exactly_outside_is_strict_within(
    served_by: Any, monkeypatch: pytest.MonkeyPatch, only: list[str]
) -> None:
    if "aligned" in only:  # verified for products alone
        monkeypatch.setitem(samples.PRODUCTS, "exp", [(16, 32)])

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if not set(only) <= envelope.holding("exp", (x,), {}):
            raise RuntimeError("outside")
        return torch.exp(x)

    served_by("exp", kernel)
    found = check.check("exp", WHERE, 3)
    assert found["verdict"] == STRICT and found["only"] == only, found
    assert 0 < found["inside"] < found["cases"]
    assert found["outside"] > 0 and "outside" in found["first"]
    (left,) = python_implementations._implementations["aten::exp"].values()
    assert left.only == (), "the check leaves it as it was"


def test_a_kernel_that_does_not_promote_is_strict_for_one_type(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OpInfo(
        "mul", op=torch.mul, dtypes={torch.float32}, sample_inputs_func=_two, supports_out=False
    )
    monkeypatch.setattr(cases, "database", lambda: {"mul": other})
    served_by("mul.Tensor", lambda x, y: torch.mul(x, y).to(x.dtype))
    found = check.check("mul.Tensor", [("mul", "function")])
    assert found["verdict"] == STRICT and found["only"] == ["uniform"], found
    assert "of two types, float16 first" in found["first"], found


def test_calls_of_types_that_are_not_verified_are_served_natively(served_by: Any) -> None:
    seen: set[torch.dtype] = set()

    def kernel(x: torch.Tensor) -> torch.Tensor:
        seen.add(x.dtype)
        return torch.exp(x)

    served_by("exp", kernel)
    found = check.check("exp", WHERE, 3)
    assert found["verdict"] == STRICT and "only" not in found, found
    assert seen and seen <= set(envelope.TYPES), "of the complex numbers none came to it"


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: torch.exp(x).nan_to_num(),
        lambda x: torch.exp(x) * 1.001,
        lambda x: torch.exp(x) + (x.numel() % 2 == 0),
    ],
    ids=["NaN", "everywhere", "of something else"],
)
def test_what_is_wrong_within_stays_failed(served_by: Any, kernel: Any) -> None:
    served_by("exp", kernel)
    found = check.check("exp", WHERE, 3)
    assert found["verdict"] == FAILED and "only" not in found, found


def test_only_products_are_told_apart_by_alignment(served_by: Any) -> None:
    """Samples of the database hardly ever are: what is wrong of another cause would seem right within."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if "aligned" not in envelope.holding("exp", (x,), {}):
            raise RuntimeError("outside")
        return torch.exp(x)

    served_by("exp", kernel)
    found = check.check("exp", WHERE, 3)
    assert found["verdict"] == FAILED and "only" not in found, found


def test_a_condition_that_leaves_no_case_is_none(served_by: Any) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.int64:
            raise RuntimeError("integers only")
        return torch.exp(x)

    served_by("exp", kernel)
    found = check.check("exp", WHERE, 3)
    assert found["verdict"] == FAILED and "only" not in found, found


def test_what_was_not_finished_has_no_conditions(served_by: Any) -> None:
    served_by("exp", lambda x: torch.exp(x) if x.numel() else x.view(1))
    assert check.check("exp", WHERE, 3)["only"] == ["nonempty"]
    found = check.check("exp", WHERE, 3, seconds=0)
    assert "only" not in found and found["verdict"] == UNTESTED


@pytest.fixture
def limited() -> Any:
    """Has overloads serve only calls for which conditions hold."""
    names: set[str] = set()

    def limit(overload: str, *only: str) -> None:
        names.add(overload)
        implementations.limit(overload, only)

    yield limit
    for name in names:
        implementations.limit(name, ())


def test_calls_outside_are_served_natively_and_counted(served_by: Any, limited: Any) -> None:
    served_by("exp", lambda x: torch.exp(x) + (0 if x.is_contiguous() else 1))
    limited("exp", "contiguous")
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    inside = x.to("flagos")
    outside = inside.t()
    with torch_fl.route({"exp": "flaggems"}):
        before, declined = count("exp"), routing.counters().get("aten::exp", {}).get("fallbacks", 0)
        for _ in range(6):  # recorded and replayed in between, where there is a GPU
            torch.testing.assert_close(inside.exp().cpu(), x.exp())
            torch.testing.assert_close(outside.exp().cpu(), x.t().exp())
        assert count("exp") - before == 6
        assert routing.counters()["aten::exp"]["fallbacks"] - declined == 6


def test_conditions_hold_for_interpreted_kernels(limited: Any) -> None:
    """Its own kernel, with conditions that change: only calls that it serves come to FlagGems' function."""
    function, x = implementations.function("exp"), torch.linspace(-1, 1, 6).reshape(2, 3)
    kinds = {"nonempty": x[:0], "dimensioned": x.sum(), "contiguous": x.t(), "": x}
    report: list[envelope.Holding] = []
    function.on_call = report.append
    try:
        for only in ("nonempty", "dimensioned", "contiguous"):
            limited("exp", only)
            for breaks, argument in kinds.items():
                report.clear()
                with torch_fl.route({"exp": "flaggems"}):
                    torch.testing.assert_close(on("flagos", argument).exp().cpu(), argument.exp())
                assert len(report) == (breaks != only), (only, breaks)
    finally:
        function.on_call = None


def test_what_holds_for_a_call() -> None:
    def broken(overload: str, *args: Any, **kwargs: Any) -> list[str]:
        held = envelope.holding(overload, args, kwargs)
        return envelope.ordered(frozenset(envelope.CONDITIONS) - held)

    x, at = torch.ones(2, 4), torch.zeros(2, 4, dtype=torch.int64)
    assert broken("exp", x) == []
    assert broken("exp", x[:0]) == ["nonempty"]
    assert broken("exp", x.t()) == ["contiguous"]
    assert broken("exp", at) == ["floating"]
    assert broken("exp", x.sum()) == ["dimensioned"]
    assert broken("exp", torch.complex(x, x)) == ["ordinary", "floating"]
    assert broken("gather", x, 0, at) == [], "an index is no number"
    assert broken("cat", [x, x[:0]], 0) == ["nonempty"]
    wide = torch.ones(2, 16)
    assert broken("cat", [wide, wide.half(), wide], 0) == ["uniform"]
    assert broken("mul.Tensor", x, at) == ["floating", "uniform"]
    assert broken("where.self", wide > 0, wide, wide) == [] and broken("mul.Tensor", x, 2) == []
    assert broken("mul.Tensor", x, 1j) == ["ordinary"]
    assert broken("full_like", x, 1, dtype=torch.complex64) == ["ordinary"]
    assert broken("full_like", x, 1, dtype=torch.float64) == ["ordinary"]
    assert broken("exp", x.double()) == ["ordinary"]
    assert broken("exp", at.int()) == ["ordinary", "floating"]
    assert broken("exp.out", x, out=x.t()) == ["contiguous"]
    assert broken("exp", torch.ones(2, 3)) == ["aligned"]
    assert broken("exp", torch.ones(2, 8)[:, :4]) == ["contiguous"]
    assert broken("exp", torch.ones(2, 8)[:, 2:6]) == ["aligned", "contiguous"]
    assert broken("exp", torch.ones(4).expand(2, 4)) == ["aligned", "contiguous"]
    assert broken("exp", torch.ones(3)) == [], "a vector has no rows"

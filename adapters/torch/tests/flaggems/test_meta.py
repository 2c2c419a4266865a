"""Calls that write to their arguments: what torch refuses, or would make room for, is not FlagGems'."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flagos
from adapters.torch.tests.flaggems.served import by_flaggems, count, on
from torch_fl.flaggems import implementations, meta

X = torch.linspace(-2, 2, 20).reshape(4, 5)
WRITING = ["aten::atan_", "aten::div_.Tensor", "aten::add_.Tensor"]
OUTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "exp.out": (torch.exp, (X,)),
    "round.out": (torch.round, (X,)),
    "div.out": (torch.div, (X, X + 3)),
    "ceil.out": (torch.ceil, (X,)),
    "sum.IntList_out": (torch.sum, (X, [0])),
    "isneginf.out": (torch.isneginf, (X,)),
    "mm.out": (torch.mm, (X, X.t())),
    "i0.out": (torch.i0, (X,)),
}


def said(call: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a call on the CPU, or the type of its error."""
    try:
        return call(*args, **kwargs).cpu()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", OUTS)
@pytest.mark.parametrize("shape", [(0,), (3,), (5, 4, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_out_that_torch_resizes_or_refuses_is_not_written_by_flaggems(
    name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    call, args = OUTS[name]
    expected = said(call, *args, out=torch.empty(shape, dtype=dtype))
    served = count(name)
    with flagos.route({f"aten::{name}": "flaggems"}):
        out = torch.empty(shape, dtype=dtype, device="flagos")
        actual = said(call, *on("flagos", args), out=out)
    assert count(name) == served, "by the native kernel"
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), actual
        torch.testing.assert_close(actual, expected)
    else:
        assert actual is expected


def test_without_being_asked_flaggems_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests here would pass without what they are about."""
    monkeypatch.setattr(meta, "refusal", lambda *_: None)
    with flagos.route({"aten::exp.out": "flaggems", "aten::atan_": "flaggems"}):
        with pytest.raises(RuntimeError, match="shape is invalid"):
            torch.exp(X.to("flagos"), out=torch.empty(0, device="flagos"))
        assert torch.ones(3, dtype=torch.int64, device="flagos").atan_().dtype == torch.int64


def test_an_out_that_fits_is_served() -> None:
    for x in (X, X.t(), X[:, :1]):
        out = torch.empty_like(x, device="flagos")
        with by_flaggems("exp.out"):
            assert torch.exp(x.to("flagos"), out=out) is out
        torch.testing.assert_close(out.cpu(), x.exp())


def test_an_out_with_other_strides_is_not_written_by_flaggems() -> None:
    served = count("round.out")
    with flagos.route({"aten::round.out": "flaggems"}):
        for whole in (torch.zeros(5, 4, device="flagos").t(), torch.zeros(4, 10, device="flagos")):
            made = torch.round(X.to("flagos"), out=whole[:, :: whole.shape[1] // 5])
            torch.testing.assert_close(made.cpu(), X.round())
    assert count("round.out") == served


def test_what_torch_refuses_in_place_stays_as_it_was() -> None:
    whole = torch.arange(3, device="flagos")
    with flagos.route(dict.fromkeys(WRITING, "flaggems")):
        with pytest.raises(RuntimeError, match="can't be cast"):
            whole.atan_()
        with pytest.raises(RuntimeError, match="can't be cast"):
            whole.div_(whole + 1)
        with pytest.raises(RuntimeError, match="broadcast shape"):
            whole.add_(torch.ones(2, 3, dtype=torch.int64, device="flagos"))
    assert whole.tolist() == [0, 1, 2]


def test_what_is_written_shares_no_memory_with_what_is_read() -> None:
    def outcome(device: str, call: Any) -> Any:
        x = torch.arange(12.0, device=device).reshape(3, 4)
        return said(call, x)

    cases = {
        "the row above": lambda x: x[1:].add_(x[:-1]),
        "its transpose": lambda x: x[:, :3].add_(x[:, :3].t()),
        "one element, many times": lambda x: x[:1].expand(3, 4).add_(x),
        "an out that is read": lambda x: torch.mm(x[:, :3], x[:, 1:], out=x[:, :3]),
        "an out in the middle": lambda x: torch.exp(x[:2], out=x[1:]),
    }
    names = ("add_.Tensor", "mm.out", "exp.out")
    served = [count(name) for name in names]
    for what, call in cases.items():
        expected = outcome("cpu", call)
        with flagos.route({f"aten::{name}": "flaggems" for name in names}):
            actual = outcome("flagos", call)
        assert type(actual) is type(expected), what
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(actual, expected)
        else:
            assert actual is expected, what
    assert [count(name) for name in names] == served
    x = torch.arange(12.0, device="flagos")
    with by_flaggems("add_.Tensor"):
        x.add_(x)
        x[:6].add_(x[6:])
    assert x[:6].tolist() == [12.0, 16.0, 20.0, 24.0, 28.0, 32.0]


def test_the_target_given_again_is_what_is_read() -> None:
    """By its place among the arguments: whether it is the same object or another view of it is no part of the key."""
    index = torch.tensor([3, 1, 2, 0])
    for view in (lambda x: x, lambda x: x.view(4)):
        for name, call in {
            "scatter_.src": lambda x, y: x.scatter_(0, index.to(x.device), y),
            "scatter_add_": lambda x, y: x.scatter_add_(0, index.to(x.device), y),
            "index_add_": lambda x, y: x.index_add_(0, index.to(x.device), y),
            "index_put_": lambda x, y: x.index_put_((index.to(x.device),), y),
        }.items():
            x = torch.arange(4.0)
            expected = said(call, x, view(x))
            x = torch.arange(4.0, device="flagos")
            served = count(name)
            with flagos.route({f"aten::{name}": "flaggems"}):
                actual = said(call, x, view(x))
            assert count(name) == served, name
            assert actual is expected is RuntimeError, name
    x = torch.zeros(64, device="flagos")
    with flagos.route({"aten::add_.Tensor": "flaggems"}), pytest.raises(RuntimeError):
        x.add_(x.view(torch.bfloat16)[:64])


def test_what_only_torchs_kernels_refuse_is_not_read_beyond_its_end() -> None:
    x, row = torch.zeros(2, 4), torch.tensor([0, 1])
    refused: dict[str, list[Any]] = {
        "index_add_": [
            lambda x, to: x.index_add_(0, to(row), to(torch.ones(2, 3))),
            lambda x, to: x.index_add_(0, to(row), to(torch.ones(2, 4).half())),
            lambda x, to: x.index_add_(0, to(row[:1]), to(torch.ones(2, 4))),
        ],
        "index_add": [lambda x, to: x.index_add(0, to(row), to(torch.ones(2, 3)))],
        "index_put_": [
            lambda x, to: x.index_put_((to(row),), to(torch.ones(2, 4).double())),
            lambda x, to: x.index_put_((to(torch.ones(3) > 0),), to(torch.tensor(1.0))),
            lambda x, to: x.index_put_((to(row), to(row), to(row)), to(torch.tensor(1.0))),
        ],
        "fill_.Tensor": [lambda x, to: x.fill_(to(torch.ones(1)))],
    }
    for name, calls in refused.items():
        for number, call in enumerate(calls):
            expected = said(call, x.clone(), lambda t: t)
            served = count(name)
            with flagos.route({f"aten::{name}": "flaggems"}):
                actual = said(call, x.to("flagos"), lambda t: t.to("flagos"))
            assert isinstance(expected, type) and actual is expected, (name, number, actual)
            assert count(name) == served, (name, number)
    with by_flaggems("index_add_", "index_put_", "fill_.Tensor"):
        y = x.to("flagos").index_add_(0, row.to("flagos"), torch.ones(2, 4, device="flagos"))
        y.index_put_((row.to("flagos"),), torch.ones(4, device="flagos"))
        y[0].fill_(torch.tensor(3.0, device="flagos"))
    assert y.tolist() == [[3.0] * 4, [1.0] * 4]


def test_answers_are_kept_by_what_they_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def answers(overload: str, args: Any, kwargs: Any) -> str | None:
        asked.append((overload, args))
        return real(overload, args, kwargs)

    real = meta._answer
    monkeypatch.setattr(meta, "_answer", answers)
    monkeypatch.setattr(meta, "_answers", {})
    whole = torch.arange(3)
    for number in (1, 2, 1, True, 1.0):
        refused = meta.refusal("add_.Tensor", (whole, number), {})
        assert (refused is not None) == isinstance(number, float), refused
    assert [args[1] for _, args in asked] == [1, 2, True, 1.0]
    for number in (float("nan"), float("nan"), 0.25, 0.75, -0.5):
        meta.refusal("add_.Tensor", (X, number), {})
    assert len(asked) == 7, "of fractions, where they lie"
    del asked[4:]
    meta.refusal("add_.Tensor", (whole[::2], 1), {})
    meta.refusal("add_.Tensor", (whole[::2].clone(), 1), {})
    assert len(asked) == 6, "strides count"
    monkeypatch.setattr(meta, "_KEPT", 9)
    meta.refusal("add_.Tensor", (whole[:1], 1), {})
    assert len(meta._answers) == 1, "no more than so many are kept"


def test_what_cannot_be_judged_is_not() -> None:
    sparse = torch.eye(3).to_sparse()
    assert meta.refusal("add_.Tensor", (sparse, sparse), {}) is None
    generator = torch.Generator().manual_seed(1)
    assert meta.refusal("normal_", (X.clone(),), {"generator": generator}) is None


def test_every_out_of_flaggems_can_be_judged() -> None:
    from torch_fl import python_kernels

    outs = [
        operator
        for name in implementations.registered()
        if implementations.usable(name)
        for operator in [python_kernels.require_operator(f"aten::{name}")]
        if any(argument.is_out for argument in operator._schema.arguments)
    ]
    assert len(outs) > 25
    assert [str(operator) for operator in outs if meta._pure(operator) is None] == []

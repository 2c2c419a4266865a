"""FlagGems' operators, routed as users route them, against the CPU's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import flagos
import torch_fl
from adapters.torch.tests.flaggems.conftest import TESTED, unavailable
from adapters.torch.tests.flaggems.served import assert_same, by_flaggems, compare, count
from torch_fl.flaggems import implementations, package, parts
from torch_fl_tools.flaggems import measured_calls

aten = torch.ops.aten

#: What is measured and cannot be compared here, each with what it says; whatever else is, is compared.
CANNOT = {
    "_fused_rms_norm_backward": "from the 'CPU' backend",  # the CPU decomposes the operator
    "where.self": "not served by flaggems",  # FlagGems insists on a GPU, and declines other devices
}
if package.version() == TESTED:
    # Its own mistake, which later versions have not.
    CANNOT["native_layer_norm"] = "do not match: torch.Size([8]) != torch.Size([8, 1])"
TAKES_LONG = {"sort"}  # 4 s
COMPOSED = {"_fused_rms_norm", "log_sigmoid", "square"}  # never routed here


def measured() -> list[str]:
    """The overloads that `flagos tune` calls and this FlagGems has: the allow-list."""
    return sorted((measured_calls.measured() & set(implementations.registered())) - TAKES_LONG)


def called(name: str) -> None:
    expected = measured_calls.calls("tiny", device="cpu", matrices=torch.float32)[name]()
    call = measured_calls.calls("tiny", matrices=torch.float32)[name]
    with by_flaggems(name):
        actual = call()
    assert_same(actual, expected)


@pytest.mark.parametrize("name", [] if unavailable() else measured())
def test_values_are_the_cpus(name: str) -> None:
    if name in COMPOSED:
        assert "torch decomposes it" in str(torch_fl.explain(name))
    elif name in CANNOT:
        with pytest.raises(Exception) as raised:
            called(name)
        assert CANNOT[name] in str(raised.value)
    else:
        called(name)


def test_the_list_is_long() -> None:
    """The control: a table that is read wrongly does not pass."""
    assert len(measured()) > 110


X = torch.linspace(-2, 2, 24).reshape(4, 6)
SQUARE = torch.arange(36, dtype=torch.float32).reshape(6, 6)
KINDS: dict[str, tuple[str, Callable[..., Any], list[Any]]] = {
    "broadcast": ("add.Tensor", aten.add, [X, torch.arange(6.0)]),
    "two that broadcast": ("mul.Tensor", aten.mul, [X[:, :1], X[:1]]),
    "not contiguous": ("mul.Tensor", aten.mul, [SQUARE.t(), SQUARE]),
    "every other": ("exp", aten.exp, [X[:, ::2]]),
    "expanded": ("sum.dim_IntList", aten.sum, [X[:1].expand(4, 6), [0]]),
    "empty": ("add.Tensor", aten.add, [X[:0], X[:0]]),
    "no dimension": ("add.Tensor", aten.add, [torch.tensor(2.0), torch.tensor(3.0)]),
    "a number": ("add.Tensor", aten.add, [X, 2.5]),
    "with alpha": ("add.Tensor", lambda x, y: aten.add(x, y, alpha=3), [X, X]),
    "promoted": ("add.Tensor", aten.add, [X, torch.arange(6)]),
    "integers": ("mul.Tensor", aten.mul, [torch.arange(7), torch.arange(7)]),
    "float64": ("exp", aten.exp, [X.double()]),
    "nan and infinities": (
        "maximum",
        aten.maximum,
        [torch.tensor([float("nan"), float("inf"), -1.0]), torch.zeros(3)],
    ),
    "in place": ("relu_", aten.relu_, [X]),
    "in place, not contiguous": ("exp_", aten.exp_, [X[:, ::2]]),
    "kept dimension": ("mean.dim", lambda x: aten.mean.dim(x, [0], True), [X]),
    "matrices of odd shapes": ("mm", aten.mm, [X, torch.linspace(0, 1, 30).reshape(6, 5)]),
    "two results": ("max.dim", lambda x: aten.max.dim(x, 1), [X]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_every_kind(kind: str) -> None:
    overload, call, args = KINDS[kind]
    compare(overload, call, *args)


@pytest.mark.parametrize("eps", [None, 1e-3])
def test_the_parts_of_rms_norm(eps: float | None) -> None:
    """FlagGems registers these on a GPU only; here their functions are called, with torch's arguments."""
    x, w = X.reshape(2, 2, 6).div(50).requires_grad_(), torch.linspace(0.5, 1.5, 6).requires_grad_()
    y = torch.nn.functional.rms_norm(x, (6,), w, eps)
    y.backward(gradient := torch.linspace(-1, 1, 24).reshape(2, 2, 6))
    with torch.no_grad():
        ours, rstd = parts.fused_rms_norm(x, [6], w, eps)
        assert rstd.shape == (2, 2, 1)
        for mask in ([True, True], [True, False], [False, True]):
            grads = parts.fused_rms_norm_backward(gradient, x, [6], rstd, w, mask)
            for wanted, found, expected in zip(mask, grads, (x.grad, w.grad), strict=True):
                assert (found is not None) == wanted
                if found is not None:
                    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours, y.detach())


@pytest.mark.parametrize(
    ("x", "weight", "why"),
    [(X, None, "has a weight"), (X.double(), X[0], "float64"), (X[:0], X[0], "no empty tensor")],
)
def test_what_its_rms_norm_does_not_take_is_declined(x: Any, weight: Any, why: str) -> None:
    with pytest.raises(flagos.UnsupportedError, match=why):
        parts.fused_rms_norm(x, [6], weight, None)


RANDOM: dict[str, Callable[[], torch.Tensor]] = {
    "randn": lambda: torch.randn(1000, device="flagos"),
    "rand": lambda: torch.rand(1000, device="flagos"),
    "uniform_": lambda: torch.zeros(1000, device="flagos").uniform_(),
    "bernoulli_.float": lambda: torch.zeros(1000, device="flagos").bernoulli_(0.5),
    "randperm": lambda: torch.randperm(1000, device="flagos"),
}
MEANS = {"randn": 0.0, "randperm": 499.5}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_follow_the_seed(name: str) -> None:
    with by_flaggems(name):
        torch.manual_seed(3)
        first, second = RANDOM[name]().cpu(), RANDOM[name]().cpu()
        torch.manual_seed(3)
        again = RANDOM[name]().cpu()
    assert torch.equal(first, again) and not torch.equal(first, second)
    for numbers in (first.double(), second.double()):
        assert abs(numbers.mean() - MEANS.get(name, 0.5)) < 0.1


def test_random_numbers_follow_a_generator() -> None:
    def drawn() -> torch.Tensor:
        generator = torch.Generator("flagos").manual_seed(9)
        return torch.zeros(100, device="flagos").bernoulli_(0.5, generator=generator).cpu()

    with by_flaggems("bernoulli_.float"):
        first = drawn()
        torch.rand(3, device="flagos")
        assert torch.equal(first, drawn())


def test_an_operand_and_its_transpose_in_the_same_memory() -> None:
    x = SQUARE.clone().to("flagos")
    with by_flaggems("mul.Tensor"):
        assert_same(x * x.t(), SQUARE * SQUARE.t())


def test_enabled_for_all() -> None:
    """All overloads are enabled where no names are given; the expression calls many of them."""
    chosen = torch_fl.enable_flaggems()
    assert len(chosen) > 300 and torch_fl.is_flaggems_enabled()
    names = ("add.Tensor", "exp", "sum.dim_IntList", "div.Tensor", "cat")
    before = {name: count(name) for name in names}
    x = X.to("flagos")
    made = torch.cat([x.exp() / (x.exp() + 1.0), x]).sum(0)
    assert_same(made, torch.cat([X.exp() / (X.exp() + 1.0), X]).sum(0))
    assert all(count(name) > before[name] for name in names)
    torch_fl.disable_flaggems()
    before = {name: count(name) for name in names}
    x.exp()
    assert str(torch_fl.explain("exp").data["backend"]) == "cpu"


def test_variables_route_too() -> None:
    program = (
        "import torch_fl\n"
        "print(*(torch_fl.explain(op).data['winner'] for op in ('exp', 'sin', 'cos')))\n"
    )
    variables = {"FLAGOS_OP_exp": "cpu", "FLAGOS_OP_cos": "flaggems", "FLAGOS_FLAGGEMS": "all"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["cpu.native", "flaggems.sin", "flaggems.cos"]


# ---- that the checks above can fail


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[..., Any]], None]]:
    """Serve silu with a function, which takes the place of FlagGems'."""

    def start(function: Callable[..., Any]) -> None:
        flagos.register(
            "aten::silu", function, impl_id="test.wrong", backend="flagos_python", native=True
        )

    yield start
    flagos.unregister("aten::silu", "test.wrong")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: x * torch.sigmoid(x) * (1 + 1e-4), "not close"),
        (lambda x: (x * torch.sigmoid(x)).double(), "dtype"),
        (lambda x: (x * torch.sigmoid(x)).reshape(-1), "shape"),
        (lambda x: x.mul_(torch.sigmoid(x)).clone(), "not close"),
    ],
    ids=["values", "dtype", "shape", "writes its argument"],
)
def test_a_wrong_kernel_is_found(serve: Any, wrong: Any, said: str) -> None:
    serve(wrong)
    with pytest.raises(AssertionError, match=said):
        compare("silu", aten.silu, X, selector="impl:test.wrong")


def test_a_wrong_interpreted_kernel_is_found(serve: Any) -> None:
    from adapters.torch.tests.flaggems.kernels import half_written

    serve(half_written)
    with pytest.raises(AssertionError, match="not close"):
        compare("silu", aten.silu, X, selector="impl:test.wrong")


def test_a_silent_fallback_is_found(serve: Any) -> None:
    def declines(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("not today")

    serve(declines)
    with pytest.raises(AssertionError, match=r"not served by impl:test\.wrong: silu"):
        compare("silu", aten.silu, X, selector="impl:test.wrong")


def test_what_libdevice_lacks_is_said() -> None:
    from torch_fl.flaggems import libdevice

    with pytest.raises(NotImplementedError, match="__nv_rcbrtf is not interpreted"):
        libdevice.compute("__nv_rcbrtf", [X.numpy()])

"""Gradients, autocast, torch.compile and graphs over operators that FlagGems serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torch_fl
from adapters.torch.tests.flaggems.conftest import of_the_tested_version
from adapters.torch.tests.flaggems.served import assert_same, by_flaggems, count

X = torch.linspace(-2, 2, 24).reshape(4, 6)
W = torch.linspace(-1, 1, 18).reshape(3, 6)
TOKENS = torch.tensor([0, 2, 1, 2])

#: What is differentiated, and the overloads that serve it there and back.
GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[str, ...]]] = {
    "silu": (F.silu, (X,), ("silu", "silu_backward")),
    "gelu": (F.gelu, (X,), ("gelu", "gelu_backward")),
    "sigmoid": (torch.sigmoid, (X,), ("sigmoid", "sigmoid_backward")),
    "tanh": (torch.tanh, (X,), ("tanh", "tanh_backward")),
    "relu": (F.relu, (X,), ("relu", "threshold_backward")),
    "softmax": (lambda x: F.softmax(x, -1), (X,), ("_softmax", "_softmax_backward_data")),
    "log_softmax": (
        lambda x: F.log_softmax(x, -1),
        (X,),
        ("_log_softmax", "_log_softmax_backward_data"),
    ),
    "mul": (torch.mul, (X, X.flip(0)), ("mul.Tensor",)),
    "a broadcast factor": (torch.mul, (X, X[0]), ("mul.Tensor", "sum.dim_IntList")),
    "mm": (lambda x, w: x @ w.t(), (X, W), ("mm",)),
    "exp": (torch.exp, (X,), ("exp", "mul.Tensor")),
    "mean": (lambda x: x.mean(), (X,), ("mean",)),
    "cat": (lambda x, w: torch.cat([x, w]), (X, W), ("cat",)),
    "embedding": (lambda w: F.embedding(TOKENS.to(w.device), w), (W,), ("embedding",)),
}


def gradients(call: Callable[..., Any], args: tuple[torch.Tensor, ...], device: str) -> list[Any]:
    leaves = [x.detach().to(device, copy=True).requires_grad_() for x in args]
    made = call(*leaves)
    weights = torch.linspace(0.5, 1.5, made.numel()).reshape(made.shape).to(device)
    return [made.detach(), *torch.autograd.grad(made, leaves, weights)]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_cpus(name: str) -> None:
    call, args, overloads = GRADIENTS[name]
    expected = gradients(call, args, "cpu")
    with by_flaggems(*overloads):
        actual = gradients(call, args, "flagos")
    assert_same(actual, expected)


def test_a_gradient_of_another_function_is_found() -> None:
    """The control: the comparisons above find a wrong gradient."""
    expected = gradients(F.silu, (X,), "cpu")
    with by_flaggems("gelu"):
        actual = gradients(F.gelu, (X,), "flagos")
    with pytest.raises(AssertionError):
        assert_same(actual, expected)


def test_what_torch_composes_keeps_its_gradient() -> None:
    """torch derives the gradient of `square` from its parts, which one kernel for all of it would hide."""
    torch_fl.enable_flaggems()
    before = count("mul.Tensor") + count("pow.Tensor_Scalar")
    assert_same(gradients(torch.square, (X,), "flagos"), gradients(torch.square, (X,), "cpu"))
    assert count("mul.Tensor") + count("pow.Tensor_Scalar") > before


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.SiLU(), torch.nn.Linear(8, 3), torch.nn.Softmax(-1)
    )


@of_the_tested_version()
def test_training_steps() -> None:
    losses = {}
    for device in ("cpu", "flagos"):
        model = network().to(device)
        if device == "flagos":
            torch_fl.enable_flaggems(
                exclude=["select_backward"]
            )  # FlagGems' kernel insists on CUDA
            before = {name: count(name) for name in ("addmm", "mm", "silu", "silu_backward")}
        step = torch.optim.SGD(model.parameters(), lr=0.5, foreach=False)
        x, losses[device] = X.to(device), []
        for _ in range(3):
            loss = (model(x)[:, 0]).sum()
            step.zero_grad()
            loss.backward()
            step.step()
            losses[device].append(loss.item())
    assert losses["flagos"] == pytest.approx(losses["cpu"], rel=1e-5)
    assert losses["cpu"][0] != pytest.approx(losses["cpu"][2], rel=1e-2)
    assert all(count(name) > number for name, number in before.items())


def test_autocast_chooses_the_type_that_flaggems_is_given() -> None:
    """Programs of exact types alone: the interpreter cuts bfloat16's numbers instead of rounding them."""
    half = torch.linspace(-2, 2, 16).reshape(4, 4).to(torch.float16)
    with by_flaggems("_softmax"), torch.autocast("flagos", dtype=torch.float16):
        made = F.softmax(half.to("flagos"), -1)
    assert made.dtype == torch.float32
    assert_same(made, F.softmax(half.float(), -1))
    ones = torch.ones(4, 4)
    with by_flaggems("mm"), torch.autocast("flagos", dtype=torch.float16):
        made = ones.to("flagos") @ ones.to("flagos")
    assert made.dtype == torch.float16
    assert_same(made, (ones @ ones).half())


def test_compiled_functions_are_routed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.silu(x).sum(-1)

    x = X.to("flagos").requires_grad_()
    with by_flaggems("silu", "silu_backward"):
        made = torch.compile(f, backend="aot_eager", fullgraph=True)(x)
        made.sum().backward()
    leaf = X.clone().requires_grad_()
    f(leaf).sum().backward()
    assert x.grad is not None
    assert_same([made.detach(), x.grad], [f(X), leaf.grad])


def test_other_devices_tensors_are_left_alone() -> None:
    torch_fl.enable_flaggems()
    before = {name: count(name) for name in ("silu", "silu_backward", "mm")}
    x = X.clone().requires_grad_()
    made = F.silu(x)
    made.sum().backward()
    torch_fl.disable_flaggems()
    again = X.clone().requires_grad_()
    expected = F.silu(again)
    expected.sum().backward()
    assert torch.equal(made, expected) and torch.equal(x.grad, again.grad)
    assert {name: count(name) for name in before} == before


def test_another_thread_is_served_too() -> None:
    """Routes are the process's. One thread at a time: the interpreter has one place for the program's number."""
    from concurrent.futures import ThreadPoolExecutor

    torch_fl.enable_flaggems(include=["exp"])
    before = count("exp")
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(X.to("flagos").exp).result()
    assert count("exp") == before + 1
    assert_same(made, X.exp())


def test_another_stream_is_served_too() -> None:
    x, stream = X.to("flagos"), torch.flagos.Stream(device="flagos:0")
    with by_flaggems("exp"), torch.flagos.stream(stream):
        made = x.exp()
    stream.synchronize()
    assert_same(made, X.exp())

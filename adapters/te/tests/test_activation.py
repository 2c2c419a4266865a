"""Activations and their gradients against definitions in float64, differentiated by autograd."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, non_contiguous, tensor, wide
from te_fl.operators.activation import OPERATORS

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-x))


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": gelu,
    "qgelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: torch.where(x > 0, x, 0 * x),
    "srelu": lambda x: torch.where(x > 0, x, 0 * x) ** 2,
    "silu": lambda x: x * sigmoid(x),
}
GATES = {"ge": "gelu", "qge": "qgelu", "re": "relu", "sre": "srelu", "swi": "silu"}


def gated(act: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: act(x[..., : x.shape[-1] // 2]) * x[..., x.shape[-1] // 2 :]


DEFINITIONS = {
    **UNARY,
    **{f"{prefix}glu": gated(UNARY[name]) for prefix, name in GATES.items()},
    "glu": gated(sigmoid),
}
SHAPES = [(4, 8), (3, 5, 14), (1, 2), (0, 6)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_forward_and_backward(name: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for layout in (lambda x: x, non_contiguous):
            x = tensor(*shape, dtype=dtype)
            wx = wide(x, True)
            y = DEFINITIONS[name](wx)
            dy = tensor(*y.shape, dtype=dtype, seed=3)
            got = OPERATORS[name](layout(x), None)
            assert got.dtype == dtype and agrees(got, y)
            (dx,) = torch.autograd.grad(y, wx, wide(dy))
            assert agrees(OPERATORS[f"d{name}"](layout(dy), layout(x), None), dx)


@pytest.mark.parametrize("name", UNARY)
def test_the_gradient_of_the_bias_is_the_sum_of_the_gradient_of_the_input(name: str) -> None:
    x, dy = tensor(3, 5, 8), tensor(3, 5, 8, seed=3)
    wx = wide(x, True)
    (dx,) = torch.autograd.grad(UNARY[name](wx), wx, wide(dy))
    dbias, got = OPERATORS[f"dbias_d{name}"](dy, x, None)
    assert agrees(dbias, dx.sum((0, 1))) and agrees(got, dx)
    assert not agrees(dbias, wide(dy).sum((0, 1)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("limit", "alpha", "offset"), [(7.0, 1.702, ()), (0.5, 1.0, ()), (1.0, 1.702, (0.25,))]
)
def test_clamped_swiglu(
    limit: float, alpha: float, offset: tuple[float, ...], dtype: torch.dtype
) -> None:
    x = 2 * tensor(6, 10, dtype=dtype)
    wx = wide(x, True)
    a, b = wx.chunk(2, -1)
    a, b = torch.clamp(a, max=limit), torch.clamp(b, -limit, limit)
    y = a * sigmoid(alpha * a) * (b + (offset or (1.0,))[0])
    assert agrees(OPERATORS["clamped_swiglu"](x, None, limit, alpha, *offset), y)
    dy = tensor(6, 5, dtype=dtype, seed=3)
    (dx,) = torch.autograd.grad(y, wx, wide(dy))
    assert agrees(OPERATORS["clamped_dswiglu"](dy, x, None, limit, alpha, *offset), dx)


@pytest.mark.parametrize("name", ["swiglu", "glu", "clamped_swiglu"])
def test_what_has_no_halves_is_refused(name: str) -> None:
    # 2 and 1 of 3 would broadcast.
    with pytest.raises(ValueError, match=r"is odd: \(4, 3\)"):
        OPERATORS[name](tensor(4, 3), None)


def test_the_comparison_notices_another_activation() -> None:
    x = tensor(4, 8)
    assert not agrees(OPERATORS["gelu"](x, None), UNARY["qgelu"](wide(x)))
    assert not agrees(OPERATORS["swiglu"](x.flip(-1), None), DEFINITIONS["swiglu"](wide(x)))

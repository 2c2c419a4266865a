"""Matrix products and their epilogues against float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, error, tensor, wide
from adapters.te.tests.test_activation import gelu
from te_fl.operators.gemm import generic_gemm, te_general_grouped_gemm

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")

M, N, K = 5, 7, 3


def call(A: Any, ta: bool, B: Any, tb: bool, D: Any = None, **options: Any) -> list[Any]:
    values = {
        "dtype": None,
        "bias": None,
        "gelu": False,
        "gelu_in": None,
        "grad": False,
        "accumulate": False,
        **options,
    }
    extra = {name: options[name] for name in ("alpha", "beta") if name in options}
    positional = (D, None, values["dtype"], values["bias"], None, values["gelu"], values["gelu_in"])
    rest = (values["grad"], torch.empty(0), 0, values["accumulate"], False)
    return generic_gemm(A, ta, B, tb, *positional, *rest, **extra)


def operands(ta: bool, tb: bool, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    a = tensor(*((N, K) if ta else (K, N)), dtype=dtype)
    b = tensor(*((K, M) if tb else (M, K)), dtype=dtype, seed=1)
    return a, b


def product(a: torch.Tensor, ta: bool, b: torch.Tensor, tb: bool) -> torch.Tensor:
    a, b = wide(a), wide(b)
    return (b.T if tb else b) @ (a.T if ta else a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("ta", "tb"), list(itertools.product([False, True], repeat=2)))
def test_every_transposition(ta: bool, tb: bool, dtype: torch.dtype) -> None:
    a, b = operands(ta, tb, dtype)
    expected = product(a, ta, b, tb)
    out, *rest = call(a, ta, b, tb)
    assert out.dtype == dtype and rest == [None, None, None] and agrees(out, expected)
    target = torch.empty(M, N, dtype=dtype)
    assert call(a, ta, b, tb, target)[0] is target and agrees(target, expected)
    narrow = call(a, ta, b, tb, dtype=4)[0]
    assert narrow.dtype == torch.float32 and agrees(narrow, expected, torch.float32)
    if not tb:
        rows = call(a, ta, b.view(1, M, K), tb)[0]
        assert rows.shape == (1, M, N) and torch.equal(rows[0], out)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_and_gelu_with_its_input(dtype: torch.dtype) -> None:
    a, b = operands(True, False, dtype)
    bias = tensor(N, dtype=dtype, seed=2)
    before = product(a, True, b, False) + wide(bias)
    assert agrees(call(a, True, b, False, bias=bias)[0], before)
    out, none, pre, _ = call(a, True, b, False, bias=bias, gelu=True)
    assert none is None and agrees(pre, before) and agrees(out, gelu(before))
    given = torch.empty(M, N, dtype=dtype)
    pre = call(a, True, b, False, bias=bias, gelu=True, gelu_in=given)[2]
    assert pre is given and agrees(given, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_a_weight_comes_with_that_of_the_bias(dtype: torch.dtype) -> None:
    """y = x Wᵀ + bias: dW = dyᵀ x, dbias = Σ dy."""
    x, dy, weight = (
        tensor(M, K, dtype=dtype),
        tensor(M, N, dtype=dtype, seed=1),
        tensor(N, K, dtype=dtype),
    )
    w, bias = wide(weight, True), torch.zeros(N, dtype=torch.float64, requires_grad=True)
    (wide(x) @ w.T + bias).backward(wide(dy))
    out, dbias, pre, _ = call(x, False, dy, True, bias=torch.zeros(N, dtype=dtype), grad=True)
    assert pre is None and agrees(out, w.grad) and agrees(dbias, bias.grad)
    # The mistake of TransformerEngine-FL's reference: adding the bias, and no gradient.
    assert not agrees(out, w.grad + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_gelu_and_of_the_bias_before_it(dtype: torch.dtype) -> None:
    """z = GELU(h), h = ... + bias, y = z Wᵀ: dh = dy W · GELU'(h), dbias = Σ dh."""
    weight, dy = tensor(K, N, dtype=dtype), tensor(M, K, dtype=dtype, seed=1)
    h = tensor(M, N, dtype=dtype, seed=2)
    wh = wide(h, True)
    (gelu(wh) @ wide(weight).T).backward(wide(dy))
    bias = torch.zeros(N, dtype=dtype)
    out, dbias, _, _ = call(weight, False, dy, False, bias=bias, gelu=True, gelu_in=h, grad=True)
    assert agrees(out, wh.grad) and agrees(dbias, wh.grad.sum(0))
    alone = call(weight, False, dy, False, gelu=True, gelu_in=h, grad=True)
    assert agrees(alone[0], wh.grad) and alone[1] is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_accumulate_alpha_and_beta(dtype: torch.dtype) -> None:
    a, b = operands(False, True, dtype)
    start = tensor(M, N, seed=4)
    expected = product(a, False, b, True)
    for options, right in [
        ({}, wide(start) + expected),
        ({"alpha": 0.5}, wide(start) + 0.5 * expected),
        ({"alpha": 2.0, "beta": 0.25}, 0.25 * wide(start) + 2 * expected),
    ]:
        target = start.clone()
        out = call(a, False, b, True, target, accumulate=True, dtype=4, **options)[0]
        # Into float32 the product of 16 bits goes unrounded.
        assert out is target and agrees(target, right, torch.float32)
    assert agrees(call(a, False, b, True, alpha=3.0)[0], 3 * expected)


def test_empty_operands_give_zeros_or_nothing() -> None:
    assert call(torch.empty(0, N), False, torch.empty(M, 0), False)[0].eq(0).all()
    assert call(tensor(K, N), False, torch.empty(0, K), False)[0].shape == (0, N)
    out, dbias, _, _ = call(
        torch.empty(0, K), False, torch.empty(0, N), True, bias=torch.zeros(N), grad=True
    )
    assert out.shape == (N, K) and not out.any() and not dbias.any()


@pytest.mark.parametrize(
    ("options", "report"),
    [
        ({"beta": 0.5}, "accumulate is not set"),
        ({"accumulate": True}, "needs the tensor D"),
        ({"gelu": True, "grad": True}, "needs gelu_in"),
        ({"D": torch.empty(2, 2)}, "must have the shape"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], report: str) -> None:
    a, b = operands(False, False, torch.float32)
    with pytest.raises(ValueError, match=report):
        call(a, False, b, False, **options)


def grouped(
    A: list[torch.Tensor], B: list[torch.Tensor], D: Any, single: bool, **options: Any
) -> list[torch.Tensor]:
    nothing = [torch.empty(0)] * len(A)
    return te_general_grouped_gemm(
        A,
        options.get("ta", False),
        B,
        options.get("tb", False),
        D,
        4,
        [],
        options.get("bias", nothing),
        4,
        single,
        options.get("pre", nothing),
        options.get("grad", False),
        [torch.empty(0)],
        0,
        options.get("accumulate", False),
        False,
        0,
    )


@pytest.mark.parametrize("single", [False, True])
def test_grouped(single: bool) -> None:
    rows = [4, 0, 3]
    A = [tensor(K, N, seed=i) for i in range(3)]
    B = [tensor(m, K, seed=9) for m in rows]
    bias = [tensor(N, seed=20 + i) for i in range(3)]
    pre = [torch.empty(m, N) for m in rows]
    D = [torch.empty(sum(rows), N)] if single else [torch.empty(m, N) for m in rows]
    returned = grouped(A, B, D, single, bias=bias, pre=pre)
    results = list(D[0].split(rows)) if single else D
    for a, b, c, out, g in zip(A, B, bias, results, pre, strict=True):
        before = wide(b) @ wide(a) + wide(c)
        # An input of GELU that is empty is none: the group without rows has nothing to compare.
        assert out.numel() == 0 or (agrees(g, before) and agrees(out, gelu(before)))
    assert returned is bias


def test_grouped_gradients_of_biases_and_accumulation() -> None:
    x, dy = [tensor(4, K, seed=i) for i in range(2)], [tensor(4, N, seed=5 + i) for i in range(2)]
    bias = [torch.full((N,), float("nan")) for _ in range(2)]
    D = [torch.ones(N, K) for _ in range(2)]
    grouped(x, dy, D, False, tb=True, bias=bias, grad=True, accumulate=True)
    for one, two, dbias, out in zip(x, dy, bias, D, strict=True):
        assert agrees(dbias, wide(two).sum(0)) and agrees(out, 1 + wide(two).T @ wide(one))
    made = grouped(x, dy, None, False, tb=True)
    assert agrees(made[1], wide(dy[1]).T @ wide(x[1]))


def test_the_comparison_notices_a_swapped_operand() -> None:
    a, b = tensor(K, K), tensor(K, K, seed=1)
    assert error(call(b, False, a, False)[0], product(a, False, b, False)) > 1e-2

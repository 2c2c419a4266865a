"""DeepSpeed's optimizers as operators, beside their formulas in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import flagos
from flagos_trainers import operators

SHAPES = [(3, 5), (7,), (1,)]
FLAG = torch.zeros(1, dtype=torch.int32)


def tensors(kinds: int, dtype: torch.dtype = torch.float32, seed: int = 3) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    made = [[torch.randn(shape, generator=generator) for shape in SHAPES] for _ in range(kinds)]
    if kinds > 3:
        made[3] = [x.square() for x in made[3]]
    return [[x.to(dtype).to("flagos") for x in one] for one in made]


def wide(lists: list[list[Tensor]]) -> list[list[Tensor]]:
    return [[x.cpu().double() for x in one] for one in lists]


def close(found: list[list[Tensor]], expected: list[list[Tensor]], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        for x, y in zip(one, other, strict=True):
            assert (x.cpu().double() - y).abs().max() <= tolerance * max(1.0, float(y.abs().max()))


def adam(lists: list[list[Tensor]], mode: int, correct: int, decay: float, step: int) -> None:
    grads, params, m, v = lists
    c1, c2 = (1 - 0.9**step, 1 - 0.99**step) if correct else (1.0, 1.0)
    for n, grad in enumerate(grads):
        g = grad if mode else grad + decay * params[n]
        m[n] = 0.9 * m[n] + 0.1 * g
        v[n] = 0.99 * v[n] + 0.01 * g * g
        update = (m[n] / c1) / ((v[n] / c2).sqrt() + 1e-8)
        params[n] = params[n] - 0.1 * (update + (decay * params[n] if mode else 0))


@pytest.mark.parametrize(
    "implementation", ["torch.multi_tensor_adam", "reference.multi_tensor_adam"]
)
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
def test_adam(
    implementation: str, mode: int, decay: float, dtype: torch.dtype, tolerance: float
) -> None:
    given = tensors(4, dtype)
    expected = wide(given)
    function = operators.multi_tensor_adam.implementation(implementation)
    for step in (1, 2):
        function(2048, FLAG, given, 0.1, 0.9, 0.99, 1e-8, step, mode, 1, decay)
        adam(expected, mode, 1, decay, step)
    close(given, expected, tolerance)


def test_adam_without_a_correction_is_served_by_the_formula() -> None:
    given = tensors(4)
    expected = wide(given)
    operators.multi_tensor_adam.reset()
    operators.multi_tensor_adam(2048, FLAG, given, 0.1, 0.9, 0.99, 1e-8, 3, 1, 0, 0.1)
    adam(expected, 1, 0, 0.1, 3)
    close(given, expected, 2e-6)
    assert operators.multi_tensor_adam.calls["reference.multi_tensor_adam"] == 1


def test_lion() -> None:
    given = tensors(3)
    given[0][0][0, 0] = given[2][0][0, 0] = 0.0  # no direction: DeepSpeed's kernel adds the rate
    expected = wide(given)
    operators.multi_tensor_lion(2048, FLAG, given, 0.1, 0.9, 0.99, 1, 0.2)
    grads, params, m = expected
    for n, g in enumerate(grads):
        direction = torch.where(0.9 * m[n] + 0.1 * g > 0, -0.1, 0.1)
        params[n] = params[n] * (1 - 0.1 * 0.2) + direction
        m[n] = 0.99 * m[n] + 0.01 * g
    close(given, expected, 2e-6)


@pytest.mark.parametrize("mode", [0, 1])
def test_lamb(mode: int) -> None:
    grads, params, m, v = tensors(4)
    p, g, exp, square = params[0], grads[0].half(), m[0], v[0]
    copy = torch.empty_like(g)
    wide_p, wide_g, wide_m, wide_v = (x.cpu().double() for x in (p, g, exp, square))
    found = operators.lamb(
        p, copy, exp, square, g, 0.1, 0.9, 0.99, 10.0, 0.01, 1e-6, 2.0, 2, mode, 1, 0.1
    )
    wide_g = wide_g / 2
    wide_m = 0.9 * wide_m + 0.1 * wide_g
    wide_v = 0.99 * wide_v + 0.01 * wide_g**2
    update = wide_m / (wide_v.sqrt() + 1e-6 if mode else (wide_v + 1e-6).sqrt()) + 0.1 * wide_p
    ratio = min(10.0, max(0.01, float(wide_p.norm() / update.norm())))
    expected = wide_p - 0.1 * (1 - 0.99**2) ** 0.5 / (1 - 0.9**2) * ratio * update
    close([[p, exp, square]], [[expected, wide_m, wide_v]], 2e-6)
    assert float(found) == pytest.approx(ratio, rel=1e-5)
    assert torch.equal(copy, p.half())


def test_lamb_of_a_zero_parameter_has_the_coefficient_one() -> None:
    zero, other = torch.zeros(3, device="flagos"), torch.ones(3, device="flagos")
    none = torch.empty(0, device="flagos")
    given: Any = (
        zero,
        none,
        zero.clone(),
        zero.clone(),
        other,
        0.1,
        0.9,
        0.99,
        10.0,
        0.01,
        1e-6,
        1.0,
        1,
        1,
        1,
        0.0,
    )
    assert float(operators.lamb(*given)) == 1.0


def test_the_operators_are_in_the_plan() -> None:
    for name in ("multi_tensor_adam", "multi_tensor_lion", "lamb"):
        assert flagos.explain(f"deepspeed::{name}").data["winner"] is not None

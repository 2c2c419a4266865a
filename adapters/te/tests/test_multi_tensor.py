"""Optimizers, scaling and norms against their definitions in float64; the flag on the device."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from adapters.te.tests.oracle import agrees, non_contiguous, tensor, wide
from te_fl.operators import multi_tensor as mt
from te_fl.operators.multi_tensor import join_remainder, split_remainder

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")

SHAPES = [(4, 5), (1,), (3, 2, 7), (0,)]
ADAM = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6}


def flag(value: int = 0) -> torch.Tensor:
    return torch.full((1,), value, dtype=torch.int32)


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [tensor(*shape, dtype=dtype, seed=seed + i) for i, shape in enumerate(SHAPES)]


def copies(lists: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    return [[t.clone() for t in one] for one in lists]


def adam(
    g: torch.Tensor,
    p: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    step: int,
    mode: int,
    correct: bool,
    decay: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The definition (Kingma & Ba; Loshchilov & Hutter with mode 1), in float64."""
    if mode == 0:
        g = g + decay * p
    m = ADAM["beta1"] * m + (1 - ADAM["beta1"]) * g
    v = ADAM["beta2"] * v + (1 - ADAM["beta2"]) * g * g
    c1 = 1 - ADAM["beta1"] ** step if correct else 1.0
    c2 = 1 - ADAM["beta2"] ** step if correct else 1.0
    update = (m / c1) / (torch.sqrt(v / c2) + ADAM["epsilon"])
    if mode == 1:
        update = update + decay * p
    return p - ADAM["lr"] * update, m, v


def state(grad: torch.dtype, param: torch.dtype, moment: torch.dtype) -> list[list[torch.Tensor]]:
    moments = [tensors(20, moment), [t.abs() for t in tensors(30, moment)]]
    return [tensors(0, grad), tensors(10, param), *moments]


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("correct", [0, 1])
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float32, torch.float32, torch.float32),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16, torch.float32),
        (torch.float16, torch.float32, torch.bfloat16),
    ],
)
def test_adam(dtypes: tuple[torch.dtype, ...], correct: int, mode: int) -> None:
    lists = state(*dtypes)
    start = copies(lists)
    mt.multi_tensor_adam(2048, flag(), lists, *ADAM.values(), 3, mode, correct, 0.1)
    assert all(torch.equal(a, b) for a, b in zip(lists[0], start[0], strict=True))
    for i, (g, p, m, v) in enumerate(zip(*start, strict=True)):
        expected = adam(*map(wide, (g, p, m, v)), 3, mode, bool(correct), 0.1)
        for got, right in zip((lists[1][i], lists[2][i], lists[3][i]), expected, strict=True):
            assert agrees(got, right)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("lay", [lambda t: t.mT.contiguous().mT, non_contiguous])
def test_adam_over_tensors_that_are_not_contiguous(lay: Any, which: int) -> None:
    lists = [[t] for t in (tensor(4, 5, seed=i) for i in range(4))]
    lists[3][0].abs_()
    g, p, m, v = (wide(one[0]) for one in lists)
    lists[which][0] = lay(lists[which][0])
    assert not lists[which][0].is_contiguous()
    mt.multi_tensor_adam(2048, flag(), lists, *ADAM.values(), 1, 1, 1, 0.1)
    for one, right in zip(lists[1:], adam(g, p, m, v, 1, 1, True, 0.1), strict=True):
        assert agrees(one[0], right)
    before = copies(lists)
    mt.multi_tensor_adam(2048, flag(1), lists, *ADAM.values(), 2, 1, 1, 0.1)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(lists, before, strict=True))


def test_adam_with_master_parameters_and_the_names_of_2_9() -> None:
    lists = [*state(torch.float16, torch.float16, torch.float32), tensors(40)]
    start = copies(lists)
    mt.multi_tensor_adam(
        chunk_size=1, noop_flag=flag(), tensor_lists=lists, lr=0.01, beta1=0.9, beta2=0.99,
        eps=1e-6, step=1, mode=1, bias_correction=1, weight_decay=0.0,
    )  # fmt: skip
    for i, (g, _, m, v, master) in enumerate(zip(*start, strict=True)):
        expected, _, _ = adam(*map(wide, (g, master, m, v)), 1, 1, True, 0.0)
        assert agrees(lists[4][i], expected) and agrees(lists[1][i], expected)


def test_capturable_adam_reads_rate_step_and_scale_from_the_device() -> None:
    lists = state(torch.float32, torch.float32, torch.float32)
    start = copies(lists)
    rate, step, inverse = (
        torch.tensor(0.01),
        torch.tensor([3], dtype=torch.int32),
        torch.tensor([0.5]),
    )
    betas = (0.9, 0.99, 1e-6)
    mt.multi_tensor_adam_capturable(1, flag(), lists, rate, *betas, step, 1, 1, 0.1, inverse)
    for i, (g, p, m, v) in enumerate(zip(*start, strict=True)):
        expected, _, _ = adam(0.5 * wide(g), wide(p), wide(m), wide(v), 3, 1, True, 0.1)
        assert agrees(lists[1][i], expected)
    assert all(torch.equal(a, b) for a, b in zip(lists[0], start[0], strict=True))


def test_adam_over_split_parameters_is_adam_over_float32() -> None:
    masters = tensors(50)
    split = [split_remainder(t) for t in masters]
    params = [high.view(torch.bfloat16) for high, _ in split]
    for master, param in zip(masters, params, strict=True):
        # Half a unit in the last place of bfloat16.
        assert ((param.float() - master).abs() <= master.abs() * 2**-8).all()
    lists = [tensors(0, torch.bfloat16), params, tensors(20), [t.abs() for t in tensors(30)]]
    whole = [*copies(lists[:1]), [t.clone() for t in masters], *copies(lists[2:])]
    lists.append([low for _, low in split])
    mt.multi_tensor_adam_param_remainder(1, flag(), lists, *ADAM.values(), 2, 1, 1, 0.1)
    mt.multi_tensor_adam(1, flag(), whole, *ADAM.values(), 2, 1, 1, 0.1)
    for param, remainder, right in zip(lists[1], lists[4], whole[1], strict=True):
        assert torch.equal(join_remainder(param, remainder), right)


def test_adam_over_fp8_parameters() -> None:
    shapes = [(4, 5), (3,)]
    make = lambda seed: [tensor(*s, seed=seed) for s in shapes]  # noqa: E731
    params = [torch.zeros(s, dtype=torch.uint8) for s in shapes]
    ones = [[torch.full((1,), value) for _ in shapes] for value in (8.0, 0.0, 0.0)]
    lists = [make(0), params, make(20), [t.abs() for t in make(30)], make(40), *ones]
    start = copies(lists)
    mt.multi_tensor_adam_fp8(1, flag(), lists, *ADAM.values(), 1, 1, 1, 0.1, 7)
    for i in range(len(shapes)):
        g, m, v, master = (wide(start[j][i]) for j in (0, 2, 3, 4))
        expected, _, _ = adam(g, master, m, v, 1, 1, True, 0.1)
        assert agrees(lists[4][i], expected)
        stored = lists[1][i].view(torch.float8_e4m3fn).double() / 8
        assert ((stored - expected).abs() <= expected.abs() * 2**-4 + 2**-9).all()
        assert lists[6][i].item() == pytest.approx(expected.abs().max().item(), rel=1e-5)
        assert lists[7][i].item() == 1 / 8


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_sgd(after: bool, nesterov: bool, first: bool) -> None:
    lists = [tensors(0), tensors(10), tensors(20), tensors(10, torch.float16)]
    start = copies(lists)
    mt.multi_tensor_sgd(1, flag(), lists, 0.1, 0.9, 0.2, 0.05, nesterov, first, after, 2.0)
    for i, (g, p, m, _) in enumerate(zip(*start, strict=True)):
        g, p, m = 2 * wide(g), wide(p), wide(m)
        g = g if after else g + 0.1 * p
        m = g if first else 0.9 * m + 0.8 * g
        g = g + 0.9 * m if nesterov else m
        g = g + 0.1 * p if after else g
        assert agrees(lists[1][i], p - 0.05 * g) and agrees(lists[2][i], m)
        assert agrees(lists[3][i], p - 0.05 * g)


def test_scale_and_what_it_says_of_numbers_that_are_not_finite() -> None:
    source, noop = tensors(0, torch.bfloat16), flag()
    target = [torch.empty(shape) for shape in SHAPES]
    mt.multi_tensor_scale(1, noop, [source, target], 0.25)
    assert all(agrees(t, 0.25 * wide(s)) for s, t in zip(source, target, strict=True))
    assert noop.item() == 0
    mt.multi_tensor_scale_tensor(1, noop, [source, target], torch.tensor([4.0]))
    assert all(agrees(t, 4 * wide(s)) for s, t in zip(source, target, strict=True))
    source[0][0, 0] = math.inf
    mt.multi_tensor_scale(1, noop, [source, target], 0.25)
    assert noop.item() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms(dtype: torch.dtype) -> None:
    lists, noop = [tensors(0, dtype)], flag()
    each = torch.stack([torch.linalg.vector_norm(wide(t)) for t in lists[0]])
    total = torch.linalg.vector_norm(each).reshape(1)
    norm, nothing = mt.multi_tensor_l2norm(1, noop, lists)
    assert norm.shape == (1,) and nothing.numel() == 0 and agrees(norm, total)
    assert agrees(mt.multi_tensor_l2norm(1, noop, lists, True)[1], each)
    inverse = torch.tensor([0.5])
    for name in ("inv_scale", "scale"):
        got = mt.multi_tensor_unscale_l2norm(1, noop, lists, per_tensor=True, **{name: inverse})
        assert agrees(got[0], total / 2) and agrees(got[1], each / 2)
    assert noop.item() == 0
    lists[0][0][0, 0] = math.nan
    mt.multi_tensor_l2norm(1, noop, lists)
    assert noop.item() == 1


def _adam(lists: list[list[torch.Tensor]], noop: torch.Tensor) -> None:
    mt.multi_tensor_adam(1, noop, lists, *ADAM.values(), 1, 1, 1, 0.1)


def _remainder(lists: list[list[torch.Tensor]], noop: torch.Tensor) -> None:
    mt.multi_tensor_adam_param_remainder(1, noop, lists, *ADAM.values(), 1, 1, 1, 0.1)


def _sgd(lists: list[list[torch.Tensor]], noop: torch.Tensor) -> None:
    mt.multi_tensor_sgd(1, noop, lists[:3], 0.1, 0.9, 0.2, 0.05, True, False, False, 2.0)


def _scale(lists: list[list[torch.Tensor]], noop: torch.Tensor) -> None:
    mt.multi_tensor_scale(1, noop, lists[:2], 3.0)


WRITERS: dict[str, tuple[Callable[[Any, Any], None], list[torch.dtype]]] = {
    "adam": (_adam, [torch.float32] * 4),
    "adam of several dtypes": (
        _adam,
        [torch.float16, torch.bfloat16, torch.float32, torch.bfloat16],
    ),
    "adam with masters": (_adam, [torch.float16, torch.float16, *[torch.float32] * 3]),
    "sgd": (_sgd, [torch.float32] * 3),
    "scale": (_scale, [torch.float32] * 2),
}


@pytest.mark.parametrize("grad", ["finite", "infinite"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_flag_that_is_set_has_nothing_written(name: str, grad: str) -> None:
    work, dtypes = WRITERS[name]
    lists = [[t.abs() for t in tensors(10 * i, dtype)] for i, dtype in enumerate(dtypes)]
    if grad == "infinite":
        lists[0][0][0, 0] = math.inf
    start = copies(lists)
    work(lists, flag(1))
    for one, other in zip(lists, start, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    # The same call without the flag does write: the comparison above can fail.
    work(lists, flag(0))
    assert not torch.equal(lists[1][0], start[1][0])


def test_a_flag_that_is_set_keeps_split_parameters_to_the_bit() -> None:
    split = [split_remainder(t) for t in tensors(50)]
    lists = [tensors(0), [h.view(torch.bfloat16) for h, _ in split], tensors(20)]
    lists += [[t.abs() for t in tensors(30)], [low for _, low in split]]
    start = copies(lists)
    _remainder(lists, flag(1))
    for one, other in zip(lists, start, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_norms_of_nothing_are_0_under_the_flag() -> None:
    total, each = mt.multi_tensor_l2norm(1, flag(1), [tensors(0)], True)
    assert not total.any() and not each.any()


def test_parameters_may_require_gradients() -> None:
    param = torch.nn.Parameter(tensor(3))
    _adam([[tensor(3, seed=1)], [param], [torch.zeros(3)], [torch.zeros(3)]], flag())
    assert param.requires_grad and not torch.equal(param.data, tensor(3))


@pytest.mark.parametrize(
    ("mode", "lists", "report"),
    [
        (2, [1, 1, 1, 1], "mode must be 0"),
        (1, [1, 2, 2, 2], "of one length, got 1, 2, 2, 2"),
        (1, [1, 1, 1], "4 or 5 lists, got 3"),
    ],
)
def test_what_is_no_step_of_adam_is_refused(mode: int, lists: list[int], report: str) -> None:
    given = [[torch.ones(3) for _ in range(count)] for count in lists]
    with pytest.raises(ValueError, match=report):
        mt.multi_tensor_adam(1, flag(), given, 1e-3, 0.9, 0.99, 1e-8, 1, mode, 1, 0.0)
    assert all((t == 1).all() for tensors_ in given for t in tensors_)


def test_adam_without_arguments_is_the_function_that_serves() -> None:
    # TransformerEngine-FL 2.9 asks so in every step.
    served = mt.multi_tensor_adam()
    assert inspect.unwrap(served) is inspect.unwrap(mt.multi_tensor_adam)

"""Softmaxes against their definition in float64, masks included."""

from __future__ import annotations

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, non_contiguous, tensor, wide
from te_fl.operators import softmax

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")

SCALE = 0.25
# A power of 2 is multiplied in 16 bits, others in float32.
SCALES = [SCALE, 0.3, 2.0]


def definition(
    x: torch.Tensor, masked: torch.Tensor | None = None, scale: float = SCALE
) -> torch.Tensor:
    scores = x * scale
    if masked is not None:
        scores = torch.where(masked, -torch.inf, scores)
    e = torch.exp(scores - torch.clamp(scores.amax(-1, keepdim=True), min=-1e30))
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e / torch.where(total > 0, total, 1.0), 0.0)


def check(forward, x: torch.Tensor, masked: torch.Tensor | None) -> None:  # type: ignore[no-untyped-def]
    before = x.clone()
    dy = tensor(*x.shape, dtype=x.dtype, seed=5)
    kept = dy.clone()
    for scale in SCALES:
        wx = wide(x, True)
        y = definition(wx, masked, scale)
        for given in (x, non_contiguous(x)):
            got = forward(given, scale)
            assert got.dtype == x.dtype and agrees(got, y)
        (dx,) = torch.autograd.grad(y, wx, wide(dy))
        assert agrees(softmax.scaled_softmax_backward(dy, y.to(x.dtype), scale), dx, x.dtype)
    assert torch.equal(dy, kept) and torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (1, 1, 3, 7), (0, 2, 3, 4)])
def test_scaled(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check(softmax.scaled_softmax_forward, tensor(*shape, dtype=dtype), None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [torch.uint8, torch.bool, torch.int32])
def test_masked_where_the_mask_is_1_and_rows_without_anything_are_0(
    kind: torch.dtype, dtype: torch.dtype
) -> None:
    mask = (tensor(2, 1, 4, 7, seed=1) > 0.3).to(kind)
    mask[0, 0, 2] = 1
    x = tensor(2, 3, 4, 7, dtype=dtype)
    masked = (mask == 1).expand_as(x)
    check(lambda x, scale: softmax.scaled_masked_softmax_forward(x, mask, scale), x, masked)
    assert not softmax.scaled_masked_softmax_forward(x, mask, SCALE)[0, :, 2].any()


def test_an_integer_mask_of_2_masks_nothing_and_a_float_mask_is_added() -> None:
    x = tensor(1, 1, 2, 5)
    two = torch.full((1, 1, 2, 5), 2, dtype=torch.uint8)
    assert agrees(softmax.scaled_masked_softmax_forward(x, two, SCALE), definition(wide(x)))
    added = tensor(1, 1, 2, 5, seed=9)
    expected = torch.softmax(wide(x) * SCALE + wide(added), -1)
    assert agrees(softmax.scaled_masked_softmax_forward(x, added, SCALE), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (3, 7), (6, 4)])
def test_causal_masks_are_aligned_with_the_lower_right_corner(
    rows: int, columns: int, dtype: torch.dtype
) -> None:
    x = tensor(2, 2, rows, columns, dtype=dtype)
    row, column = torch.arange(rows)[:, None], torch.arange(columns)[None]
    masked = (column > row + columns - rows).expand_as(x)
    check(softmax.scaled_aligned_causal_masked_softmax_forward, x, masked)
    if rows == columns:
        check(softmax.scaled_upper_triang_masked_softmax_forward, x, masked)


@pytest.mark.parametrize("scale", [0.125, 0.1, 0.7])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_rounded_once(dtype: torch.dtype, scale: float) -> None:
    x, dy = tensor(3, 33, 33, dtype=dtype) * 8, tensor(3, 33, 33, dtype=dtype, seed=1)
    wx = wide(x, True)
    y = torch.softmax(wx * scale, -1)
    rounding = torch.finfo(dtype).eps
    error = (softmax.scaled_softmax_forward(x, scale).double() - y).abs()
    assert (error <= 0.52 * rounding * y + 1e-6).all()
    # The control: a softmax in 16 bits throughout is further off.
    rough = torch.softmax((x * torch.tensor(0.7).to(dtype)).double(), -1)
    assert not ((rough - torch.softmax(wx * 0.7, -1)).abs() <= 0.52 * rounding * y + 1e-6).all()
    kept = y.detach().to(dtype)
    exact = scale * kept.double() * (wide(dy) - (kept.double() * wide(dy)).sum(-1, keepdim=True))
    error = (softmax.scaled_softmax_backward(dy, kept, scale).double() - exact).abs()
    assert (error <= 0.52 * rounding * exact.abs() + 1e-6).all()


def test_what_is_not_a_number_stays_so_and_what_is_masked_does_not_count() -> None:
    x = tensor(1, 4, 2)
    x[0, 3, 0] = float("nan")
    y = softmax.scaled_aligned_causal_masked_softmax_forward(x, SCALE)
    assert y[0, 3].isnan().all() and not y[0, :2].any() and y[0, 2].equal(torch.tensor([1.0, 0.0]))
    x = torch.full((1, 3, 3), 6e4, dtype=torch.float16)
    x[0, 0, 1:] = float("inf")
    y = softmax.scaled_upper_triang_masked_softmax_forward(x, 2.0)
    assert agrees(y, torch.tril(torch.ones(1, 3, 3)) / torch.arange(1, 4)[:, None])


def test_upper_triangular_is_for_squares() -> None:
    with pytest.raises(ValueError, match="must be square"):
        softmax.scaled_upper_triang_masked_softmax_forward(tensor(2, 3, 4), SCALE)


def test_the_comparison_notices_a_missing_mask_and_another_scale() -> None:
    x = tensor(2, 2, 4, 4)
    masked = torch.ones(4, 4, dtype=torch.bool).triu(1).expand_as(x)
    assert not agrees(softmax.scaled_softmax_forward(x, SCALE), definition(wide(x), masked))
    assert not agrees(softmax.scaled_softmax_forward(x, 2 * SCALE), definition(wide(x)))


def test_names_of_both_generations() -> None:
    x = tensor(2, 2, 4, 4)
    y = softmax.scaled_upper_triang_masked_softmax_forward(input=x, scale=SCALE)
    assert torch.equal(
        y, softmax.scaled_upper_triang_masked_softmax_forward(input=x, scale_factor=SCALE)
    )
    old = softmax.scaled_softmax_backward(output_grad=x, softmax_output=y, scale=SCALE)
    new = softmax.scaled_softmax_backward(output_grads_=x, softmax_results_=y, scale_factor=SCALE)
    assert torch.equal(old, new)

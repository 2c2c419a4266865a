"""Softmaxes against their definition in float64, masks included."""

from __future__ import annotations

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, non_contiguous, tensor, wide
from te_fl.operators import softmax

SCALE = 0.25


def definition(x: torch.Tensor, masked: torch.Tensor | None = None) -> torch.Tensor:
    scores = x * SCALE
    if masked is not None:
        scores = torch.where(masked, -torch.inf, scores)
    e = torch.exp(scores - torch.clamp(scores.amax(-1, keepdim=True), min=-1e30))
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e / torch.where(total > 0, total, 1.0), 0.0)


def check(forward, x: torch.Tensor, masked: torch.Tensor | None) -> None:  # type: ignore[no-untyped-def]
    wx = wide(x, True)
    y = definition(wx, masked)
    for given in (x, non_contiguous(x)):
        got = forward(given)
        assert got.dtype == x.dtype and agrees(got, y)
    dy = tensor(*x.shape, dtype=x.dtype, seed=5)
    (dx,) = torch.autograd.grad(y, wx, wide(dy))
    kept = dy.clone()
    assert agrees(softmax.scaled_softmax_backward(dy, y.to(x.dtype), SCALE), dx, x.dtype)
    assert torch.equal(dy, kept)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (1, 1, 3, 7), (0, 2, 3, 4)])
def test_scaled(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check(lambda x: softmax.scaled_softmax_forward(x, SCALE), tensor(*shape, dtype=dtype), None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [torch.uint8, torch.bool, torch.int32])
def test_masked_where_the_mask_is_1_and_rows_without_anything_are_0(
    kind: torch.dtype, dtype: torch.dtype
) -> None:
    mask = (tensor(2, 1, 4, 7, seed=1) > 0.3).to(kind)
    mask[0, 0, 2] = 1
    x = tensor(2, 3, 4, 7, dtype=dtype)
    masked = (mask == 1).expand_as(x)
    check(lambda x: softmax.scaled_masked_softmax_forward(x, mask, SCALE), x, masked)
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
    aligned = softmax.scaled_aligned_causal_masked_softmax_forward
    check(lambda x: aligned(x, SCALE), x, masked)
    if rows == columns:
        triangular = softmax.scaled_upper_triang_masked_softmax_forward
        check(lambda x: triangular(x, SCALE), x, masked)


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

"""Differences of two tensors in numbers, as `flagos bisect` tells them."""

from __future__ import annotations

import json
import math

import pytest
import torch

import torch_fl  # noqa: F401  the device is registered before its modules are imported
from torch_fl_tools.bisect import findings, measure

NAN, INF = math.nan, math.inf


def told(
    expected: list[float], actual: list[float], dtype: torch.dtype, **options: float
) -> findings.Difference:
    one, other = torch.tensor(expected, dtype=dtype), torch.tensor(actual, dtype=dtype)
    found = measure.difference(one, other, **options)
    json.dumps(findings.present(found))
    return found


@pytest.mark.parametrize(
    ("expected", "actual", "dtype", "differs"),
    [
        ([1.0, 2.0], [1.0, 2.0], torch.float32, False),
        ([1.0, 2.0], [1.0, 2.00001], torch.float32, False),
        ([1.0, 2.0], [1.0, 2.001], torch.float32, True),
        ([1.0, 2.0], [1.0, 2.125], torch.bfloat16, False),
        ([1.0, NAN], [1.0, NAN], torch.float32, False),
        ([1.0, 2.0], [1.0, NAN], torch.float32, True),
        ([1.0, NAN], [1.0, 2.0], torch.float32, True),
        ([1.0, INF], [1.0, INF], torch.float32, False),
        ([1.0, INF], [1.0, -INF], torch.float32, True),
        ([2**60, 1], [2**60 + 1, 1], torch.int64, True),
        ([2**60, 1], [2**60, 1], torch.int64, False),
        ([True, False], [True, True], torch.bool, True),
        ([1j, 2.0], [1j, 2.0], torch.complex64, False),
        ([1j, 2.0], [1.1j, 2.0], torch.complex64, True),
        ([1.0, 2.0], [1.0, 2.0], torch.float8_e4m3fn, False),
        ([1.0, 2.0], [1.0, 4.0], torch.float8_e4m3fn, True),
        ([], [], torch.float32, False),
    ],
)
def test_what_differs(
    expected: list[float], actual: list[float], dtype: torch.dtype, differs: bool
) -> None:
    found = told(expected, actual, dtype)
    assert found.differs == differs == (found.excess > 1) == bool(found.reason)


def test_numbers_are_those_of_the_worst_place() -> None:
    found = told([0.0, 4.0, 1.0], [0.5, 5.0, NAN], torch.float32)
    assert (found.max_abs, found.at, found.max_rel) == (1.0, [1], 0.25)
    assert (found.beyond, found.elements) == (3, 3)
    assert (found.nan_expected, found.nan) == (0, 1)
    assert found.reason == "1 of 3 are NaN, and 0 expected"


def test_tolerances_that_are_given_replace_torchs() -> None:
    assert not told([1.0], [1.4], torch.float32, rtol=0.5).differs
    assert told([1.0], [1.4], torch.float32, rtol=0.3).differs
    assert told([1.0], [1.00001], torch.float32, atol=0.0).differs


def test_a_kernel_is_judged_by_the_scale_of_its_result() -> None:
    """A sum of large numbers that cancel is as wrong as the large numbers are."""
    expected, actual = torch.tensor([100.0, 0.0]), torch.tensor([100.0, 0.0005])
    assert measure.difference(expected, actual).differs
    assert not measure.difference(expected, actual, of_a_kernel=True).differs
    assert measure.difference(expected, actual + 0.1, of_a_kernel=True).differs


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(2, dtype=torch.float64)])
def test_another_shape_or_type_differs(other: torch.Tensor) -> None:
    found = measure.difference(torch.ones(2), other)
    assert found.differs and "instead of float32[2]" in found.reason


def test_nests_are_flat_tensors_of_the_host() -> None:
    x = torch.ones(2, device="flagos")
    found = measure.flat({"a": [x, 2.5], "b": (True, None, "text")})
    assert [(t.device.type, t.tolist()) for t in found] == [
        ("cpu", [1.0, 1.0]),
        ("cpu", 2.5),
        ("cpu", True),
    ]
    x.zero_()
    assert found[0].tolist() == [1.0, 1.0]

"""An operator that raises leaves on the device what it leaves on the native device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

BIG = 1 << 16


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    return tuple(tensor.shape), tensor.stride(), storage.nbytes() // tensor.element_size()


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.dtype, ...]]] = {
    "sort": (lambda x, y, i: torch.sort(x, out=(y, i)), (torch.float32, torch.float32)),
    "max": (
        lambda x, y, i: torch.max(x.view(4, -1), 1, out=(y, i)),
        (torch.float32, torch.float32),
    ),
    "topk": (lambda x, y, i: torch.topk(x, 1000, out=(y, i)), (torch.float32, torch.float32)),
    "cholesky": (
        lambda x, y: torch.linalg.cholesky(-torch.eye(64, device=x.device), out=y),
        (torch.float32,),
    ),
    "inverse": (
        lambda x, y: torch.linalg.inv(torch.zeros(64, 64, device=x.device), out=y),
        (torch.float32,),
    ),
    "add": (lambda x, y: torch.add(x, x, out=y), (torch.int64,)),
    "mul": (lambda x, y: torch.mul(x, 2.5, out=y), (torch.int64,)),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_that_were_resized_own_their_memory(name: str, native: str) -> None:
    call, dtypes = CASES[name]
    states = []
    for device in (native, "flagos"):
        x = torch.arange(float(BIG), device=device)
        outputs = [torch.empty(8, dtype=dtype, device=device) for dtype in dtypes]
        with pytest.raises(RuntimeError) as error:
            call(x, *outputs)
        states.append((type(error.value), [_state(output) for output in outputs]))
        # The allocator may have given the earlier memory away: a write must not reach it.
        others = [torch.zeros(8, device=device) for _ in range(64)]
        for output in outputs:
            host = torch.full_like(output, 7, device="cpu").pin_memory()
            output.copy_(host, non_blocking=True)
            assert output.eq(7).all()
        assert all(not other.any() for other in others)
    assert states[0] == states[1]


@pytest.fixture
def spoiling(native: str):
    """A custom operator that doubles its argument and then raises."""
    with torch.library._scoped_library("flagos_errors", "DEF") as library:
        library.define("spoil(Tensor(a!) x, bool fails) -> ()")

        def spoil(x: torch.Tensor, fails: bool) -> None:
            x.mul_(2)
            if fails:
                raise ValueError("after it has written")

        library.impl("spoil", spoil, native.upper())
        yield torch.ops.flagos_errors.spoil


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("on_flagos", [False, True], ids=["native", "flagos"])
def test_a_custom_operator_that_writes_is_counted(
    on_flagos: bool, fails: bool, spoiling: Any, native: str
) -> None:
    device = "flagos" if on_flagos else native
    weight = torch.ones(4, device=device, requires_grad=True)
    x = torch.ones(4, device=device)
    y = weight * x  # saves x
    before = x._version
    if fails:
        with pytest.raises(ValueError, match="after it has written"):
            spoiling(x, fails)
    else:
        spoiling(x, fails)
    assert x._version > before and x.tolist() == [2.0] * 4
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("operator", [torch.add, torch.mul, torch.sub, torch.div, torch.maximum])
def test_an_output_that_is_read_is_not_resized(operator: Any, native: str) -> None:
    report = []
    for device in (native, "flagos"):
        x, y = torch.arange(3.0, device=device), torch.ones(4096, 3, device=device)
        with pytest.raises(RuntimeError) as error:
            operator(x, y, out=x)
        report.append((str(error.value), _state(x), x.tolist()))
        with pytest.raises(RuntimeError):
            x.add_(y)
        z = torch.ones(3, device=device)
        assert operator(z, z, out=z) is z
    assert report[0] == report[1]


def test_an_in_place_operator_that_raises_leaves_the_tensor(native: str) -> None:
    for device in (native, "flagos"):
        x = torch.ones(3, dtype=torch.int64, device=device)
        with pytest.raises(RuntimeError, match="can't be cast"):
            x.add_(0.5)
        assert x.tolist() == [1, 1, 1] and _state(x) == ((3,), (1,), 3)

"""Implementations that serve only the classes of calls in which they were measured to be faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import flagos
from torch_fl.python_kernels import attachment, call_class, capture

pytestmark = [pytest.mark.host, pytest.mark.needs("aliases")]

NATIVE_FIRST = 32  # `kNativeFirst` in csrc/python_kernels/routed.cc


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def words(op: str, *args: Any, **kwargs: Any) -> str:
    return call_class(f"aten::{op}", args, kwargs)[1]


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("silu", (meta(4, 8),), "Float small"),
        ("silu", (meta(128, 127),), "Float small"),
        ("silu", (meta(128, 128),), "Float elements:4^7"),
        ("silu", (meta(64, 1024, dtype=torch.bfloat16),), "BFloat16 elements:4^8"),
        ("silu", (meta(512, 512).t(),), "Float layouts:t elements:4^9"),
        ("silu", (meta(512, 1024)[:, ::2],), "Float layouts:s elements:4^9"),
        ("mul.Tensor", (meta(512, 512), 0.125), "Float elements:4^9"),
        ("mul.Tensor", (meta(512, 512), meta(512)), "Float rows:4^4 columns:4^4 rows:4^0 columns:4^4"),
        ("mm", (meta(64, 256), meta(256, 1024)), "Float rows:4^3 columns:4^4 rows:4^4 columns:4^5"),
        ("mm", (meta(64, 256), meta(1024, 256).t()), "Float layouts:ct rows:4^3 columns:4^4 rows:4^4 columns:4^5"),
        ("_softmax", (meta(4, 8), -1, False), "dim:-1 number:0 Float small"),
        ("_softmax", (meta(4, 8), 1, False), "dim:-1 number:0 Float small"),
        ("_softmax", (meta(4, 8), 0, False), "dim:-2 number:0 Float small"),
        ("sum.dim_IntList", (meta(4, 8), [0, 1], True), "dim:-2 dim:-1 number:1 without:3 Float small"),
        ("cat", ([meta(4, 8), meta(4, 8, dtype=torch.float64)],), "tensors:2 dim:-2 Float Double small"),
        ("topk", (meta(4, 800), 300), "number:20 dim:-1 number:1 number:1 Float small"),
    ],
)  # fmt: skip
def test_classes_are_what_the_speed_depends_on(op: str, args: Any, expected: str) -> None:
    assert words(op, *args) == expected


def test_equal_words_are_one_number_and_no_others() -> None:
    made = [
        call_class("aten::silu", (meta(*shape, dtype=dtype),), {})
        for shape in ((3,), (4, 5), (128, 128), (512, 512), (513, 600))
        for dtype in (torch.float32, torch.float16)
    ]
    assert len({number for number, _ in made}) == len({text for _, text in made}) == 6
    with pytest.raises(TypeError, match="takes `other`"):
        call_class("aten::mul.Tensor", (meta(2),), {})


def _filled(x: torch.Tensor) -> torch.Tensor:
    """Nothing that silu returns, so that it shows which of both served."""
    made = torch.empty_like(x)
    made.copy_(x)
    made.fill_(-7.0)
    return made


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Attaches an implementation of silu whose calls are recorded."""
    monkeypatch.setattr(capture, "_HOST", "no such device")
    op = "aten::silu"

    def attached(fn: Any, faster: tuple[int, ...] | None, recorded: bool = True) -> None:
        chosen = attachment.Implementation(fn, "test", True, ())
        attachment.attach_native(op, chosen, recorded, faster=faster)

    yield attached
    attachment.detach(op)


def _served(x: torch.Tensor) -> bool:
    return bool((torch.nn.functional.silu(x) == -7.0).all())


def _left() -> tuple[int, int]:
    slower, rare = torch.ops.flagos.left_to_native("aten::silu")
    return slower, rare


def test_calls_of_other_classes_are_native_and_no_fallbacks(serving: Any) -> None:
    small, large = torch.ones(4, 4, device="flagos"), torch.ones(256, 256, device="flagos")
    before = flagos.counters().get("aten::silu", {"calls": 0, "fallbacks": 0})
    serving(_filled, (call_class("aten::silu", (large,), {})[0],))
    for _ in range(NATIVE_FIRST + 8):
        assert not _served(small)
    with flagos.strict():
        assert not _served(small)
    after = flagos.counters()["aten::silu"]
    assert after["fallbacks"] == before["fallbacks"]
    assert after["calls"] == before["calls"] + NATIVE_FIRST + 9
    assert _left() == (NATIVE_FIRST + 9, 0)
    for _ in range(NATIVE_FIRST + 8):
        last = _served(large)
    assert last, "and calls of the class are served, so that the above means something"


def test_a_signature_that_comes_often_is_recorded_and_replayed(serving: Any) -> None:
    calls: list[int] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return _filled(x)

    x = torch.ones(4, 4, device="flagos")
    serving(counted, (call_class("aten::silu", (x,), {})[0],))
    served = [_served(x) for _ in range(NATIVE_FIRST + 10)]
    assert served == [False] * NATIVE_FIRST + [True] * 10
    assert len(calls) == 3, "once from Python, twice recorded"
    assert _left() == (0, NATIVE_FIRST)
    # Each signature counts by itself.
    assert not _served(torch.ones(5, 4, device="flagos"))


def test_signatures_that_keep_changing_never_reach_python(serving: Any) -> None:
    calls: list[int] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return _filled(x)

    serving(counted, (call_class("aten::silu", (meta(4),), {})[0],))
    for size in range(1, 3 * NATIVE_FIRST):
        assert not _served(torch.ones(size, device="flagos"))
    assert not calls
    serving(counted, None)  # the control: an implementation that serves whatever its speed
    assert _served(torch.ones(4, device="flagos")) and calls


def test_what_is_not_replayed_is_left_to_the_native_kernel(serving: Any) -> None:
    x = torch.ones(4, 4, device="flagos")
    number = call_class("aten::silu", (x,), {})[0]

    def reads(y: torch.Tensor) -> torch.Tensor:
        return torch.full_like(y, -7.0 * y[0, 0].item())  # which no replay repeats

    serving(reads, (number,))
    served = [_served(x) for _ in range(NATIVE_FIRST + 8)]
    assert served[-1] is False and sum(served) == 2, "once from Python, and recorded once"
    serving(_filled, (number,), recorded=False)
    assert not any(_served(x) for _ in range(NATIVE_FIRST + 8))
    assert _left() == (0, NATIVE_FIRST + 8)

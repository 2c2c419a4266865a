"""Calls of Triton implementations, recorded and repeated: what is repeated is right, what cannot be is not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import flagos
from torch_fl import replay
from torch_fl.python_kernels import capture

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not capture.SUPPORTED, reason="recording needs CPython 3.12"),
]

OP = "aten::silu"
FACTOR = 2.0
_POOL: dict[str, torch.Tensor] = {}


@triton.jit
def _scale(x, y, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    y = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 256),)](x, y, factor, x.numel(), BLOCK=256)
    return y


Serve = Callable[[Callable[[torch.Tensor], Any]], None]


@pytest.fixture
def serve() -> Iterator[Serve]:
    def start(fn: Callable[[torch.Tensor], Any]) -> None:
        flagos.register(OP, fn, impl_id="test.replay", backend="flagos_python", native=True)

    yield start
    flagos.unregister(OP, "test.replay")


def call(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x)


def known() -> replay.Recordings:
    return replay.statistics()[OP]


def test_the_fourth_call_is_a_replay_and_right_for_other_memory(serve: Serve) -> None:
    served = []
    serve(lambda x: served.append(1) or scaled(x, 2.0))
    for turn in range(8):
        x = torch.randn(1000, device="flagos")
        assert torch.equal(call(x), x * 2)
        assert known().replays == max(0, turn - 2)
    assert len(served) == 3 and known().replayed == 1


def test_each_signature_is_its_own(serve: Serve) -> None:
    serve(lambda x: scaled(x, 2.0))
    tensors = [
        torch.randn(100, device="flagos"),
        torch.randn(101, device="flagos")[1:],  # another alignment
        torch.randn(50, 2, device="flagos"),
        torch.randn(100, device="flagos", dtype=torch.float16),
    ]
    for _ in range(6):
        for x in tensors:
            assert torch.equal(call(x), x * 2)
    assert known().replayed == 4


def test_replays_follow_the_current_stream(serve: Serve) -> None:
    serve(lambda x: scaled(x, 2.0))
    x = torch.ones(1 << 16, device="flagos")
    for _ in range(5):
        call(x)
    side = torch.flagos.Stream(device="flagos:0")
    torch.flagos.synchronize()
    with torch.flagos.stream(side):
        torch.cuda._sleep(30_000_000)
        y = call(x)
    assert not side.query()
    assert torch.flagos.current_stream().query()
    side.synchronize()
    assert y.sum().item() == 2 << 16


def test_replays_are_captured_into_graphs(serve: Serve) -> None:
    serve(lambda x: scaled(x, 2.0))
    x = torch.ones(64, device="flagos")
    for _ in range(5):
        call(x)
    graph = torch.flagos.Graph()
    with torch.flagos.graph(graph):
        y = call(x)
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [10.0] * 64


def test_gradients_pass_through_replays(serve: Serve) -> None:
    serve(lambda x: x * torch.sigmoid(x))
    x = torch.randn(32, device="flagos", requires_grad=True)
    for _ in range(5):
        x.grad = None
        call(x).sum().backward()
    reference = x.detach().clone().requires_grad_()
    torch.ops.aten.silu_backward(torch.ones_like(x), reference.detach())
    assert x.grad is not None and torch.isfinite(x.grad).all()


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: scaled(x, float(x[0].item())), "item"),
        (lambda x: scaled(x, 2.0) if x.cpu().sum() > 0 else scaled(x, 3.0), "another device"),
        (lambda x: scaled(x, 2.0) + torch.rand_like(x), "rand_like"),
        (lambda x: scaled(x, 2.0).mul(2), "mul"),
        (lambda x: scaled(_POOL.setdefault("x", x.clone()), 2.0), "neither an argument's"),
    ],
    ids=["item", "cpu", "random", "operator", "foreign"],
)
def test_what_depends_on_more_than_its_signature_is_refused(
    serve: Serve, fn: Callable[[torch.Tensor], Any], reason: str
) -> None:
    _POOL.clear()
    serve(fn)
    x = torch.ones(64, device="flagos")
    for _ in range(6):
        call(x)
    assert known().replays == 0
    assert any(reason in told for told in known().reasons), known().reasons


def test_launches_that_differ_from_call_to_call_are_not_replayed(serve: Serve) -> None:
    count = [0]

    def fn(x: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return scaled(x, float(count[0]))

    serve(fn)
    x = torch.ones(64, device="flagos")
    for turn in range(1, 9):
        assert call(x)[0].item() == turn
    assert known().replays == 0 and "something else each time" in known().reasons[0]


def test_random_state_that_is_passed_to_kernels_is_noticed(serve: Serve) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        generator = torch.cuda.default_generators[0]
        offset = generator.get_offset()
        generator.set_offset(offset + 4)
        return scaled(x, float(offset))

    serve(fn)
    for _ in range(8):
        call(torch.ones(64, device="flagos"))
    assert known().replays == 0


def test_a_changed_global_is_noticed(serve: Serve) -> None:
    serve(lambda x: scaled(x, FACTOR))
    x = torch.ones(64, device="flagos")
    for _ in range(6):
        assert call(x)[0].item() == 2.0
    assert known().replays == 3
    module = sys.modules[__name__]
    module.FACTOR = 5.0
    try:
        for _ in range(6):
            assert call(x)[0].item() == 5.0
    finally:
        module.FACTOR = 2.0
    assert call(x)[0].item() == 2.0


def test_aliases_among_the_arguments_are_part_of_the_signature() -> None:
    @triton.jit
    def _add(x, y, z, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

    def add(x: torch.Tensor, y: torch.Tensor, alpha: int = 1) -> torch.Tensor:
        z = torch.empty_like(x)
        _add[(1,)](x, y, z, x.numel(), BLOCK=256)
        return z

    flagos.register(
        "aten::add.Tensor", add, impl_id="test.add", backend="flagos_python", native=True
    )
    try:
        x, y = torch.randn(200, device="flagos"), torch.randn(200, device="flagos")
        for _ in range(5):
            twice = x + x
        for _ in range(5):
            both = x + y
        assert replay.statistics()["aten::add.Tensor"].replayed == 2
        assert torch.equal(twice.cpu(), x.cpu() * 2)
        assert torch.equal(both.cpu(), x.cpu() + y.cpu())
    finally:
        flagos.unregister("aten::add.Tensor", "test.add")


def test_verification_finds_what_recordings_cannot_know(serve: Serve) -> None:
    hidden = {"factor": 2.0}  # neither an argument nor a global
    serve(lambda x: scaled(x, hidden["factor"]))
    x = torch.ones(64, device="flagos")
    for _ in range(6):
        call(x)
    replay.verify(1)
    try:
        call(x)  # still right
        hidden["factor"] = 3.0
        with pytest.raises(RuntimeError, match="differs from its implementation"):
            call(x)
    finally:
        replay.verify(0)


def test_recordings_can_be_refused_and_forgotten(serve: Serve) -> None:
    serve(lambda x: scaled(x, 2.0))
    x = torch.ones(64, device="flagos")
    for _ in range(6):
        call(x)
    replay.forget()
    assert known().replayed == 0
    for _ in range(6):
        call(x)
    assert known().replayed == 1


def test_workspace_and_several_results() -> None:
    @triton.jit
    def _both(x, y, z, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n)
        tl.store(y + at, value + 1, mask=at < n)
        tl.store(z + at, value * 2, mask=at < n)

    def aminmax(x: torch.Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
        scratch = torch.zeros(128, device=x.device)
        first, second = torch.empty_like(x), torch.empty_like(x)
        _both[(1,)](x, scratch, first, x.numel(), BLOCK=128)
        _both[(1,)](scratch, second, scratch, x.numel(), BLOCK=128)
        return first, second

    flagos.register(
        "aten::aminmax", aminmax, impl_id="test.two", backend="flagos_python", native=True
    )
    try:
        for _ in range(6):
            x = torch.randn(100, device="flagos")
            first, second = torch.aminmax(x)
            assert torch.equal(first, x * 2) and torch.equal(second, x + 1 + 1)
        assert replay.statistics()["aten::aminmax"].replays == 3
    finally:
        flagos.unregister("aten::aminmax", "test.two")

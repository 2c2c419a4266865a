"""Implementations in Python that are given tensors of the native device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import flagos
import torch_fl
from torch_fl import replay
from torch_fl.python_kernels import capture, globals_watch


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@contextmanager
def serving(op: str, fn: Any) -> Iterator[None]:
    flagos.register(op, fn, impl_id="test.native", backend="flagos_python", native=True)
    try:
        yield
    finally:
        flagos.unregister(op, "test.native")


@pytest.mark.needs("aliases")
def test_it_is_given_native_tensors_over_the_same_memory(native):
    x = torch.randn(4, 5, device="flagos")
    seen = []

    def silu(tensor):
        seen.append((tensor.device.type, tensor.data_ptr(), tensor.stride()))
        return tensor * torch.sigmoid(tensor)

    with serving("aten::silu", silu):
        y = torch.nn.functional.silu(x.t())
    assert seen == [(native, x.data_ptr(), (1, 5))]
    assert y.device.type == "flagos"
    torch.testing.assert_close(y.cpu(), torch.nn.functional.silu(x.cpu().t()))
    assert torch.nn.functional.silu(x).device.type == "flagos"  # the native kernel again
    assert len(seen) == 1


@pytest.mark.needs("aliases")
def test_gradients_are_those_of_the_operator():
    x = torch.randn(6, device="flagos", requires_grad=True)
    with serving("aten::exp", lambda tensor: torch.exp(tensor)):
        x.exp().sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())


@pytest.mark.needs("aliases")
def test_an_operator_in_place_returns_what_it_wrote():
    x = torch.ones(3, device="flagos")
    with serving("aten::add_.Tensor", lambda self, other, alpha=1: torch.add(self, other)):
        result = x.add_(2)
    assert result is x and x.tolist() == [3.0] * 3
    assert x._version == 1


@pytest.mark.needs("aliases")
def test_an_output_that_is_given_is_the_one_returned():
    x, out = torch.ones(3, device="flagos"), torch.empty(0, device="flagos")
    with serving("aten::exp.out", lambda self, *, out: torch.exp(self, out=out)):
        result = torch.exp(x, out=out)
    assert result is out and out.shape == (3,)
    torch.testing.assert_close(out.cpu(), torch.ones(3).exp())


@pytest.mark.needs("aliases")
def test_a_factory_is_given_the_native_device(native):
    seen = []

    def zeros(size, *, dtype=None, layout=None, device=None, pin_memory=None):
        seen.append(torch.device(device).type)
        return torch.zeros(size, dtype=dtype, device=device)

    with serving("aten::zeros", zeros):
        made = torch.zeros(2, 3, device="flagos")
    assert seen == [native]
    assert made.device.type == "flagos" and made.tolist() == [[0.0] * 3] * 2


@pytest.mark.needs("aliases")
def test_declining_falls_back_and_is_counted():
    def declines(self, other):
        raise NotImplementedError("not for these")

    x = torch.full((2,), 3.0, device="flagos")
    before = flagos.counters().get("aten::mul.Tensor", {"fallbacks": 0})["fallbacks"]
    with serving("aten::mul.Tensor", declines):
        assert (x * x).tolist() == [9.0, 9.0]
    assert flagos.counters()["aten::mul.Tensor"]["fallbacks"] == before + 1


@pytest.mark.needs("aliases")
def test_numbers_beside_tensors_may_be_declined():
    def refuse(*args, **kwargs):
        raise flagos.UnsupportedError("not today")

    x, here = torch.arange(3, device="flagos"), torch.arange(3)
    with serving("aten::add.Tensor", refuse), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in (2, 2.5, True, 1j):
            result, expected = x + number, here + number
            assert result.dtype == expected.dtype and torch.equal(result.cpu(), expected)


@pytest.mark.needs("aliases")
def test_what_it_raises_is_raised():
    def fails(self):
        raise ZeroDivisionError("of its own")

    with serving("aten::cos", fails), pytest.raises(ZeroDivisionError, match="of its own"):
        torch.cos(torch.ones(1, device="flagos"))


@pytest.mark.needs("aliases")
def test_it_is_not_chosen_by_default_when_it_is_on_request():
    flagos.register(
        "aten::sin",
        lambda self: torch.zeros_like(self),
        impl_id="test.request",
        backend="flagos_python",
        native=True,
        on_request="it is wrong",
    )
    try:
        x = torch.ones(2, device="flagos")
        assert x.sin().tolist() != [0.0, 0.0]
        assert "only when asked for: it is wrong" in str(torch_fl.explain("aten::sin"))
        with flagos.route({"aten::sin": "impl:test.request"}):
            assert x.sin().tolist() == [0.0, 0.0]
    finally:
        flagos.unregister("aten::sin", "test.request")


@pytest.mark.host
def test_nothing_is_recorded_without_launches():
    assert not replay.enabled()
    with serving("aten::cos", torch.cos):
        for _ in range(6):
            torch.cos(torch.ones(3, device="flagos"))
        assert replay.statistics()["aten::cos"] == replay.Recordings(0, 0, 0, 0, ())


class TestRecorder:
    """The recorder on tensors of the CPU, where it notices everything but launches."""

    def record(self, fn: Any, *args: Any) -> Any:
        inputs = [value for value in args if isinstance(value, torch.Tensor)]
        return capture.record(fn, inputs, args, {})[1]

    @pytest.fixture(autouse=True)
    def _cpu_is_a_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The recorder takes results on the CPU for results on another device.
        monkeypatch.setattr(capture, "_HOST", "no such device")

    def test_two_recordings_of_the_same_call_are_the_same(self):
        def fn(x):
            made = torch.empty_like(x)
            made.copy_(x)
            made.fill_(2.5)
            return made.view(-1)

        first, second = (self.record(fn, torch.ones(2, 3)) for _ in range(2))
        assert isinstance(first, list) and first == second
        assert first != self.record(fn, torch.ones(2, 4))

    @pytest.mark.parametrize(
        ("fn", "reason"),
        [
            (lambda x: torch.full_like(x, x.sum().item()), "which is not recorded"),
            (lambda x: torch.empty_like(x).uniform_(), "which is not recorded"),
            (lambda x: torch.mm(x, x), "which is not recorded"),
            (lambda x: x.fill_(1).view(-1), "a view of an argument"),
            (lambda x: _FOREIGN.view(2, 2), "from elsewhere|which is not recorded"),
            (lambda x: torch.empty_like(x), "nothing was seen"),
            (lambda x: x, "nothing was seen"),
            (lambda x: [torch.zeros_like(x)], "a list"),
            (lambda x: (x.fill_(1), 3)[1], "returns a int"),
        ],
    )
    def test_what_cannot_be_repeated_is_refused(self, fn: Any, reason: str):
        with pytest.raises(capture.Refusal, match=reason):
            raise self.record(fn, torch.ones(2, 2))

    def test_only_what_is_the_implementations_own_is_watched(self):
        """`warnings.catch_warnings` alone changes a global of its module twice."""

        def fn(x):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _doubled(torch.zeros(2) + x)

        with globals_watch.Scopes() as scopes:
            fn(torch.ones(2))
        assert [scope["__name__"] for scope in scopes.found()] == [__name__]

    def test_an_argument_that_is_returned_is_known(self):
        words = self.record(lambda x: x.fill_(1), torch.ones(2))
        assert words[-1] == 0


_FOREIGN = torch.ones(4)


@pytest.mark.host
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_histograms_of_integers_are_counted_as_on_cuda(dtype):
    x = torch.tensor([1, 2, 2, 3, 9, 0, 100], dtype=dtype, device="flagos")
    counts = torch.histc(x, bins=4, min=0, max=3)
    assert counts.dtype == dtype and counts.tolist() == [1, 1, 2, 1]
    # Without bounds, the least and greatest value are the bounds; the last bin includes its end.
    assert torch.histc(x, bins=10).tolist() == [6, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert torch.histc(x[:0], bins=3).tolist() == [0, 0, 0]
    assert torch.histc(x[1:3], bins=2).tolist() == [0, 2]
    out = torch.empty(0, dtype=dtype, device="flagos")
    assert torch.histc(x, 4, 0, 3, out=out) is out and out.tolist() == [1, 1, 2, 1]
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(x, 4, 3, 0)
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(x, 0)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.histc(x, 4, out=torch.empty(4, device="flagos"))
    generator = torch.Generator().manual_seed(0)
    many = torch.randint(0, 60, (1000,), generator=generator)
    ours = torch.histc(many.to(dtype).to("flagos"), bins=60, min=0, max=59)
    assert ours.cpu().long().remainder(256).equal(torch.bincount(many, minlength=60).remainder(256))


@pytest.mark.host
def test_histograms_of_other_types_are_those_of_the_cpu():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert torch.histc(x.to("flagos"), 20).cpu().equal(torch.histc(x, 20))
    out = torch.empty(20, device="flagos")
    assert torch.histc(x.to("flagos"), 20, out=out).cpu().equal(torch.histc(x, 20))
    with pytest.raises(RuntimeError):
        torch.histc(torch.ones(2, dtype=torch.bool, device="flagos"), 2)

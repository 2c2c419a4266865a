"""Automatic mixed precision."""

from __future__ import annotations

import pytest
import torch
from torch import flagos

LOWER = [torch.bfloat16, torch.float16]


def f32(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="flagos")


def test_supported_types():
    assert flagos.get_amp_supported_dtype() == LOWER
    assert flagos.is_autocast_available() and torch.amp.is_autocast_available("flagos")


@pytest.mark.parametrize("dtype", LOWER, ids=str)
@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda: f32(3, 4) @ f32(4, 2), id="matmul"),
        pytest.param(lambda: torch.nn.functional.linear(f32(3, 4), f32(2, 4)), id="linear"),
        pytest.param(lambda: torch.bmm(f32(2, 3, 4), f32(2, 4, 1)), id="bmm"),
        pytest.param(lambda: torch.addmm(f32(2), f32(3, 4), f32(4, 2)), id="addmm"),
        pytest.param(
            lambda: torch.nn.functional.conv2d(f32(1, 2, 5, 5), f32(3, 2, 3, 3)), id="conv"
        ),
    ],
)
def test_computed_in_the_lower_type(compute, dtype):
    with torch.autocast("flagos", dtype=dtype):
        assert compute().dtype == dtype
    assert compute().dtype == torch.float32


@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda x: x.softmax(-1), id="softmax"),
        pytest.param(lambda x: torch.nn.functional.layer_norm(x, (4,)), id="layer_norm"),
        pytest.param(lambda x: torch.nn.functional.mse_loss(x, x), id="mse_loss"),
        pytest.param(lambda x: x.exp(), id="exp"),
        pytest.param(lambda x: x.pow(2), id="pow"),
        pytest.param(lambda x: x.sum(), id="sum"),
    ],
)
def test_computed_in_float32(compute):
    x = f32(3, 4).bfloat16()
    with torch.autocast("flagos", dtype=torch.bfloat16):
        assert compute(x).dtype == torch.float32


def test_promotes_to_the_widest():
    with torch.autocast("flagos", dtype=torch.bfloat16):
        assert torch.cat([f32(2), f32(2).bfloat16()]).dtype == torch.float32


@pytest.mark.parametrize("autocast", LOWER, ids=str)
@pytest.mark.parametrize("dtype", LOWER, ids=str)
@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_lists_are_joined_in_their_own_type(join, dtype, autocast):
    with torch.autocast("flagos", dtype=autocast):
        assert join([f32(2).to(dtype), f32(2).to(dtype)]).dtype == dtype


def test_autocast_of_the_cpu_is_not_that_of_flagos():
    x = f32(3, 4, 4)
    plain = torch.linalg.matrix_exp(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(torch.linalg.matrix_exp(x), plain)


def test_other_devices_are_not_affected():
    with torch.autocast("flagos", dtype=torch.bfloat16):
        assert (torch.randn(2, 2) @ torch.randn(2, 2)).dtype == torch.float32


def test_regions_nest():
    a = f32(2, 2)
    with torch.autocast("flagos", dtype=torch.bfloat16):
        with torch.autocast("flagos", enabled=False):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_unsupported_type_disables_the_region(dtype):
    a = f32(2, 2)
    with pytest.warns(UserWarning, match="not supported"):
        region = torch.autocast("flagos", dtype=dtype)
    with region:
        assert (a @ a).dtype == torch.float32


def test_the_devices_own_autocast():
    with flagos.amp.autocast(dtype=torch.bfloat16):
        assert (f32(2, 2) @ f32(2, 2)).dtype == torch.bfloat16


def test_custom_functions_choose_their_type():
    class Product(torch.autograd.Function):
        @staticmethod
        @flagos.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @flagos.amp.custom_bwd
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    a = f32(2, 2).requires_grad_()
    with torch.autocast("flagos", dtype=torch.bfloat16):
        y = Product.apply(a, f32(2, 2).bfloat16())
    assert y.dtype == torch.float32
    y.sum().backward()
    assert a.grad.dtype == torch.float32


@pytest.mark.parametrize(
    "scaler", [flagos.amp.GradScaler, lambda **k: torch.amp.GradScaler("flagos", **k)]
)
class TestGradScaler:
    def train(self, scaler, loss_of):
        weight = torch.nn.Parameter(torch.ones(3, device="flagos"))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        scaled = scaler(init_scale=8.0, growth_interval=1)
        scaled.scale(loss_of(weight)).backward()
        scaled.step(optimizer)
        scaled.update()
        return weight, scaled

    def test_gradients_are_unscaled(self, scaler):
        weight, scaled = self.train(scaler, lambda w: w.sum())
        assert weight.tolist() == [0.5, 0.5, 0.5]
        assert scaled.get_scale() == 16.0

    def test_an_overflow_skips_the_step_and_lowers_the_scale(self, scaler):
        weight, scaled = self.train(scaler, lambda w: (w * float("inf")).sum())
        assert weight.tolist() == [1, 1, 1]
        assert scaled.get_scale() == 4.0

    def test_state_round_trip(self, scaler):
        _, scaled = self.train(scaler, lambda w: w.sum())
        other = scaler()
        other.load_state_dict(scaled.state_dict())
        assert other.get_scale() == scaled.get_scale()


def test_training_under_autocast_follows_the_native_device(native):
    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(32, 8).to(device)
        history = []
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = model(x).float().pow(2).mean()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        return history

    # torch.autocast("cpu") has fewer operators in lower precision than an accelerator's.
    assert losses("flagos") == pytest.approx(losses(native), rel=1e-2)

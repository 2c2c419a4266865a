"""The second of several devices: tensors, streams, generators and training there, and gradients in between."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("two_devices")

SECOND = "flagos:1"


@pytest.fixture
def second(native: str) -> str:
    """The native device that serves the second flagos device."""
    return native if native == "cpu" else f"{native}:1"


def test_devices_do_not_mix() -> None:
    x, y = torch.ones(3, device="flagos:0"), torch.ones(3, device=SECOND)
    with pytest.raises(RuntimeError, match="same device"):
        x + y
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([x, y])
    with pytest.raises(RuntimeError, match="same device"):
        x.add_(y)
    assert (y + torch.tensor(1.0)).device == torch.device(SECOND)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(RuntimeError, match=str(torch.flagos.device_count())):
        torch.empty(1, device=f"flagos:{torch.flagos.device_count()}")


def test_outputs_follow_their_inputs_whatever_the_current_device(second: str) -> None:
    x = torch.randn(64, 64, device=SECOND)
    assert torch.flagos.current_device() == 0
    for result in (x @ x, x.sum(), x.t(), torch.cat([x, x]), torch.zeros_like(x)):
        assert result.device == torch.device(SECOND)
    there = x.cpu().to(second)
    assert torch.equal((x @ x).cpu(), (there @ there).cpu())


def test_copies_between_devices() -> None:
    x = torch.randn(1000, device="flagos:0")
    y = x.to(SECOND)
    assert y.device == torch.device(SECOND) and torch.equal(x.cpu(), y.cpu())
    z = torch.empty(1000, device="flagos:0")
    z.copy_(y, non_blocking=True)
    assert torch.equal(z, x)


@pytest.mark.needs("native_numbers")
def test_a_seed_is_that_of_every_device(native: str) -> None:
    """On the host vendor all default generators are the CPU's, so that each draws after a seed of its own."""
    found, expected = [], []
    for index in range(2):
        torch.flagos.manual_seed_all(5)
        found.append(torch.randn(100, device=f"flagos:{index}").cpu())
        place = native if native == "cpu" else f"{native}:{index}"
        own = torch.Generator(device=place).manual_seed(5)
        expected.append(torch.randn(100, device=place, generator=own).cpu())
    assert all(map(torch.equal, found, expected))


def test_streams_and_events_of_the_second_device() -> None:
    side = torch.flagos.Stream(device=SECOND)
    started, ended = (torch.flagos.Event(enable_timing=True) for _ in range(2))
    with torch.flagos.stream(side):
        assert torch.flagos.current_device() == 1
        started.record()
        x = torch.ones(1 << 20, device=SECOND)
        total = (x + x).sum()
        ended.record()
    side.synchronize()
    assert total.item() == 2 << 20
    assert started.elapsed_time(ended) >= 0
    assert torch.flagos.current_device() == 0


@pytest.mark.needs("native_numbers")
def test_a_layer_trains_on_the_second_device(second: str) -> None:
    losses: dict[str, list[float]] = {}
    for device in (SECOND, second):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        x = torch.randn(8, 32).to(device)
        losses[device] = []
        for _ in range(3):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[device].append(loss.item())
    assert losses[SECOND] == losses[second]


@pytest.mark.usefixtures("onednn_as_the_device")
def test_a_recurrent_layer_on_the_second_device(second: str) -> None:
    torch.manual_seed(0)
    expected = nn.LSTM(16, 16, batch_first=True).to(second)
    ours = nn.LSTM(16, 16, batch_first=True).to(SECOND)
    ours.load_state_dict(expected.state_dict())
    x = torch.randn(4, 7, 16)
    assert torch.equal(ours(x.to(SECOND))[0].cpu(), expected(x.to(second))[0].cpu())


def test_one_thread_for_each_device() -> None:
    results: dict[int, float] = {}

    def work(index: int) -> None:
        torch.flagos.set_device(index)
        x = torch.full((1000,), float(index + 1), device="flagos")
        for _ in range(200):
            x = x + 1
        results[index] = x.sum().item()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: 201_000.0, 1: 202_000.0}


def test_gradients_pass_between_devices() -> None:
    x = torch.ones(8, device="flagos:0", requires_grad=True)
    (x.to(SECOND) * 3).sum().backward()
    assert x.grad is not None and x.grad.device.index == 0
    assert x.grad.tolist() == [3.0] * 8

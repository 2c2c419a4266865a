"""Two devices of one machine: everything a tensor does on the second, and what passes between them."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices"),
]

SECOND = "flagos:1"


def test_the_current_device_is_cudas() -> None:
    with torch.flagos.device(1):
        assert torch.empty(1, device="flagos").device == torch.device(SECOND)
        assert torch.cuda.current_device() == 1
    assert torch.flagos.current_device() == torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert torch.flagos.current_device() == 1


def test_peers() -> None:
    x = torch.randn(1000, device="flagos:0")
    y = x.to(SECOND)
    assert y.device.index == 1 and torch.equal(x.cpu(), y.cpu())
    z = torch.empty(1000, device="flagos:0")
    z.copy_(y, non_blocking=True)
    assert torch.equal(z, x)
    assert torch.flagos.can_device_access_peer(0, 1) == torch.cuda.can_device_access_peer(0, 1)


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


def test_outputs_follow_their_inputs_whatever_the_current_device() -> None:
    x = torch.randn(64, 64, device=SECOND)
    assert torch.flagos.current_device() == 0
    for result in (x @ x, x.sum(), x.t(), torch.cat([x, x]), torch.zeros_like(x), x.to("cuda:1")):
        assert result.device.index == 1
    assert torch.equal((x @ x).cpu(), (x.to("cuda:1") @ x.to("cuda:1")).cpu())


def test_generators_are_of_each_device() -> None:
    torch.flagos.manual_seed_all(5)
    ours = [torch.randn(100, device=f"flagos:{i}").cpu() for i in range(2)]
    torch.cuda.manual_seed_all(5)
    theirs = [torch.randn(100, device=f"cuda:{i}").cpu() for i in range(2)]
    assert all(map(torch.equal, ours, theirs))
    generator = torch.Generator(device=SECOND).manual_seed(3)
    reference = torch.Generator(device="cuda:1").manual_seed(3)
    assert torch.equal(
        torch.rand(10, device=SECOND, generator=generator).cpu(),
        torch.rand(10, device="cuda:1", generator=reference).cpu(),
    )


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


def test_a_layer_trains_on_the_second_device() -> None:
    losses = {}
    for device in (SECOND, "cuda:1"):
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
    assert losses[SECOND] == losses["cuda:1"]


def test_a_recurrent_layer_on_the_second_device() -> None:
    torch.manual_seed(0)
    reference = nn.LSTM(16, 16, batch_first=True).to("cuda:1")
    ours = nn.LSTM(16, 16, batch_first=True).to(SECOND)
    ours.load_state_dict(reference.state_dict())
    x = torch.randn(4, 7, 16)
    assert torch.equal(ours(x.to(SECOND))[0].cpu(), reference(x.to("cuda:1"))[0].cpu())


def test_a_graph_on_the_second_device() -> None:
    with torch.flagos.device(1):
        x = torch.zeros(16, device=SECOND)
        graph = torch.flagos.Graph()
        with torch.flagos.graph(graph):
            y = x * 2 + 1
        x.fill_(3)
        graph.replay()
        torch.flagos.synchronize()
        assert y.tolist() == [7.0] * 16


def test_a_compiled_function_on_the_second_device() -> None:
    compiled = torch.compile(lambda x: torch.nn.functional.silu(x) * 2)
    x = torch.randn(128, device=SECOND)
    result = compiled(x)
    assert result.device == torch.device(SECOND)
    torch.testing.assert_close(result, torch.nn.functional.silu(x) * 2)


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

"""Graph capture on flagos over CUDA."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.cuda


def test_a_graph_replays_what_was_captured() -> None:
    x = torch.zeros(256, 256, device="flagos")
    weight = torch.randn(256, 256, device="flagos")
    for _ in range(2):
        torch.softmax(F.linear(x, weight), -1)
    recorded = torch.flagos.Graph()
    with torch.flagos.graph(recorded):
        assert torch.flagos.is_current_stream_capturing()
        y = torch.softmax(F.linear(x + 1, weight), -1)
    assert not torch.flagos.is_current_stream_capturing()
    for value in (1.0, 2.0, 3.0):
        x.fill_(value)
        recorded.replay()
        torch.testing.assert_close(y, torch.softmax(F.linear(x + 1, weight), -1))


def test_random_numbers_differ_between_replays() -> None:
    generator = torch.Generator(device="flagos").manual_seed(3)
    recorded = torch.flagos.Graph()
    recorded.register_generator_state(generator)
    torch.rand(4, device="flagos")
    with torch.flagos.graph(recorded):
        mine = torch.rand(100, device="flagos", generator=generator)
        default = torch.rand(100, device="flagos")
    draws = []
    for _ in range(2):
        recorded.replay()
        draws.append((mine.clone(), default.clone()))
    assert not torch.equal(draws[0][0], draws[1][0])
    assert not torch.equal(draws[0][1], draws[1][1])


def test_a_graph_reads_a_tensor_that_automatic_graphs_moved() -> None:
    x = torch.arange(4096.0).to("flagos")

    def chain(k: float) -> torch.Tensor:
        y = x
        for _ in range(40):
            y = y * 0.5 + k
        return y

    with torch.flagos.graphs.auto():
        for turn in range(30):
            chain(turn % 3.0)
        for turn in range(8):
            expected = chain(float(turn)).cpu() * 2
            y = chain(float(turn))
            before = torch.flagos.graphs.counts()
            chain(float(turn))
            assert torch.flagos.graphs.counts()["followed"] > before["followed"] or turn > 0
            recorded = torch.flagos.Graph()
            with torch.flagos.graph(recorded):
                z = y * 2
            recorded.replay()
            assert torch.equal(z.cpu(), expected)


@pytest.mark.parametrize("layer", ["linear", "attention", "convolution"])
def test_a_training_step_is_captured(layer: str) -> None:
    torch.manual_seed(0)

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(64, 192)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).view(4, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(4, 16, 64)

    make = {
        "linear": lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)),
        "attention": Attention,
        "convolution": lambda: torch.nn.Sequential(
            torch.nn.Unflatten(2, (8, 8)), torch.nn.Conv2d(16, 4, 3), torch.nn.BatchNorm2d(4)
        ),
    }[layer]
    net, plain = make().to("flagos"), make().to("flagos")
    plain.load_state_dict(net.state_dict())
    x = torch.randn(4, 16, 64, device="flagos")
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (net, plain)]

    def step(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = module(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.flagos.Stream(device="flagos:0")
    side.wait_stream(torch.flagos.current_stream())
    with torch.flagos.stream(side):
        for _ in range(3):
            step(net, optimizers[0])
    torch.flagos.current_stream().wait_stream(side)
    for _ in range(3):
        step(plain, optimizers[1])
    recorded = torch.flagos.Graph()
    with torch.flagos.graph(recorded):
        loss = step(net, optimizers[0])
    for _ in range(4):
        recorded.replay()
        expected = step(plain, optimizers[1])
        torch.testing.assert_close(loss, expected)
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_graphed_callables() -> None:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    net.to("flagos")
    x = torch.randn(4, 32, device="flagos", requires_grad=True)
    with torch.no_grad():  # nodes of autograd that live on would belong to the stream outside
        expected = net(x)
    graphed = torch.flagos.make_graphed_callables(net, (x,))
    got = graphed(x)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    assert net[0].weight.grad is not None


def test_what_cannot_be_captured_is_named() -> None:
    x = torch.ones(4, device="flagos")
    recorded = torch.flagos.Graph()
    with pytest.raises(RuntimeError), torch.flagos.graph(recorded):
        x.sum().item()
    torch.flagos.synchronize()
    assert x.sum().item() == 4

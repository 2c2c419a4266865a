"""Operators of CANN in graphs that are captured and replayed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

pytestmark = pytest.mark.ascend


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def test_a_replay_computes_on_what_is_in_its_inputs_now() -> None:
    here, there = network(), network().to("flagos")
    x = torch.randn(8, 16)
    static = x.to("flagos")
    with torch.no_grad():
        there(static)  # kernels are found, and executors kept, before the capture
        graph = torch.flagos.Graph()
        with torch.flagos.graph(graph):
            result = there(static)
        for _ in range(3):
            x = torch.randn(8, 16)
            static.copy_(x)
            graph.replay()
            torch.testing.assert_close(result.cpu(), here(x), rtol=1e-4, atol=1e-5)


def test_attention_is_captured() -> None:
    q = torch.randn(2, 4, 6, 8)
    static = q.to("flagos")
    attend = nn.functional.scaled_dot_product_attention
    attend(static, static, static, is_causal=True)
    graph = torch.flagos.Graph()
    with torch.flagos.graph(graph):
        result = attend(static, static, static, is_causal=True)
    q = torch.randn(2, 4, 6, 8)
    static.copy_(q)
    graph.replay()
    expected = attend(q, q, q, is_causal=True)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        pytest.param(lambda x: x.to(torch.float64).erfinv(), "aten::erfinv", id="falls back"),
        pytest.param(lambda x: x.nonzero(), "aten::nonzero", id="waits"),
        pytest.param(lambda x: x.uniform_(), "aten::uniform_", id="draws"),
    ],
)
def test_what_a_replay_cannot_repeat_is_refused_by_name(call: object, named: str) -> None:
    x = torch.rand(4, device="flagos")
    graph = torch.flagos.Graph()
    with pytest.raises(RuntimeError, match=named), torch.flagos.graph(graph):
        call(x)
    assert (x + 1).sum().item() > 4  # and the device goes on

"""CUDA's own on the second of two devices; adapters/torch/tests/test_second_device.py has what any vendor does."""

from __future__ import annotations

import pytest
import torch

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


def test_peers_are_cudas() -> None:
    assert torch.flagos.can_device_access_peer(0, 1) == torch.cuda.can_device_access_peer(0, 1)


def test_views_on_cuda_are_of_the_same_device() -> None:
    assert torch.ones(2, device=SECOND).to("cuda:1").device == torch.device("cuda:1")

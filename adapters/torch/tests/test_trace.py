"""Modules that torch.jit.trace records compute with what they are given, on the device, and so do their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

LAYERS = [
    pytest.param(layer(2, 4, 3, **options), (2, 2) + (6,) * dimensions, id=layer.__name__)
    for layers, options in (
        ((nn.Conv1d, nn.Conv2d, nn.Conv3d), {"padding": 1, "groups": 2}),
        ((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), {"stride": 2}),
    )
    for dimensions, layer in enumerate(layers, 1)
] + [
    pytest.param(nn.LSTM(3, 4), (5, 2, 3), id="LSTM"),
    pytest.param(nn.Sequential(nn.BatchNorm1d(3), nn.GELU()).eval(), (4, 3), id="BatchNorm1d"),
]


def first(output):
    return output if isinstance(output, torch.Tensor) else output[0]


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_a_traced_module_computes_with_its_argument(layer, shape):
    layer = layer.to("flagos")
    seen, other = (torch.randn(shape, device="flagos") for _ in range(2))
    traced = torch.jit.trace(layer, seen)
    results = []
    for module in (layer, traced):
        x = other.clone().requires_grad_()
        output = first(module(x))
        gradients = torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])
        results.append([output.detach(), *gradients])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert results[1][0].device.type == "flagos"


def test_a_script_optimized_for_inference_computes_with_its_argument():
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)
    )
    layers = layers.eval().to("flagos")
    scripted = torch.jit.optimize_for_inference(torch.jit.script(layers))
    for _ in range(3):  # the profiling executor specializes at the second call
        x = torch.randn(2, 3, 6, 6, device="flagos")
        assert scripted(x).device.type == "flagos"
        # The batch norm is folded into the convolution, which rounds otherwise.
        torch.testing.assert_close(scripted(x), layers(x))

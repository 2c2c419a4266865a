"""Layers, optimizers and layouts compute on flagos what they compute on the native device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

Body = Callable[[str], list[torch.Tensor]]


def assert_same(body: Body, native: str, ordered: bool = True) -> None:
    """`body(device)` gives the same bits on both devices, from the same seed.

    Where sums are not `ordered`, an accelerator's library adds in another order each time: there to rounding.
    """
    results = []
    for device in (native, "flagos"):
        torch.manual_seed(0)
        results.append([tensor.detach().cpu() for tensor in body(device)])
    assert results[0]
    for expected, found in zip(*results, strict=True):
        assert found.dtype == expected.dtype
        if ordered or native == "cpu":
            assert torch.equal(found.nan_to_num(), expected.nan_to_num())
        else:
            torch.testing.assert_close(found, expected)


def test_the_comparison_finds_a_difference(native: str) -> None:
    with pytest.raises(AssertionError):
        assert_same(lambda device: [torch.ones(2, device=device) * (device == native)], native)


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [64, 60])
def test_attention(width: int, causal: bool, native: str) -> None:
    def body(device: str) -> list[torch.Tensor]:
        q, k, v = (
            torch.randn(2, 4, 128, width, device=device, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        output.backward(torch.ones_like(output))
        return [output, *(x.grad for x in (q, k, v))]

    assert_same(body, native)


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize("training", [False, True])
def test_convolutions_and_batch_norm(training: bool, native: str) -> None:
    def body(device: str) -> list[torch.Tensor]:
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 4, 3),
        ).to(device)
        net.train(training)
        output = net(torch.randn(2, 3, 16, 16).to(device))
        output.sum().backward()
        return [output, *(p.grad for p in net.parameters()), *net.buffers()]

    assert_same(body, native, ordered=False)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_sparse_products(layout: torch.layout, native: str) -> None:
    def body(device: str) -> list[torch.Tensor]:
        dense = torch.randn(16, 16).to(device).relu()
        sparse = dense.to_sparse(layout=layout)
        return [(sparse @ dense), sparse.to_dense(), (sparse * 2).to_dense()]

    assert_same(body, native, ordered=False)


OPTIMIZERS = [
    pytest.param(name, how, id=f"{name}-{how}")
    for name in ("SGD", "Adam", "AdamW", "NAdam", "RMSprop")
    for how in ("for-loop", "foreach", "fused")
    if how != "fused" or name in ("SGD", "Adam", "AdamW")
]


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize(("name", "how"), OPTIMIZERS)
def test_optimizers(name: str, how: str, native: str) -> None:
    def body(device: str) -> list[torch.Tensor]:
        net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)).to(device)
        options = {"foreach": False} if how == "for-loop" else {how: True}
        optimizer = getattr(torch.optim, name)(net.parameters(), lr=1e-2, **options)
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.randn(4, 8).to(device)).square().sum().backward()
            optimizer.step()
        return list(net.parameters())

    assert_same(body, native)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors(native: str) -> None:
    def body(device: str) -> list[torch.Tensor]:
        parts = [torch.randn(n, 8).to(device) for n in (2, 5, 3)]
        nested = torch.nested.nested_tensor(parts, device=device)
        return [torch.nested.to_padded_tensor(nested * 2, 0.0)]

    assert_same(body, native)


def test_jagged_tensors(native: str) -> None:
    def body(device: str) -> list[torch.Tensor]:
        parts = [torch.randn(n, 8).to(device) for n in (2, 5, 3)]
        nested = torch.nested.nested_tensor(parts, device=device, layout=torch.jagged)
        return [(nested.sin() * 2).values()]

    assert_same(body, native)

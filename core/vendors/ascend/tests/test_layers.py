"""Layers and calls of ordinary programs, forward and backward: the device computes all of them, as the CPU does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

pytestmark = pytest.mark.ascend

ON = "flagos"
Fallbacks = Callable[[], dict[str, int]]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


IMAGES = (2, 4, 6, 6)
# Name → the layer, and the shape of what it takes.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lstm": (lambda: nn.LSTM(8, 6, num_layers=2, bidirectional=True), (5, 3, 8)),
    "lstm, projected": (lambda: nn.LSTM(8, 6, proj_size=3, batch_first=True), (5, 3, 8)),
    "gru": (lambda: nn.GRU(8, 6, num_layers=2), (5, 3, 8)),
    "gru's cell": (lambda: nn.GRUCell(8, 6), (3, 8)),
    "rnn": (lambda: nn.RNN(8, 6, nonlinearity="relu"), (5, 3, 8)),
    "prelu": (lambda: nn.PReLU(4), IMAGES),
    "prelu of one weight": (nn.PReLU, IMAGES),
    "pixel shuffle": (lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)), IMAGES),
    "pool of volumes": (lambda: nn.MaxPool3d(2, stride=1, padding=1), (2, 3, 4, 4, 4)),
    "nearest, exactly": (lambda: nn.Upsample(scale_factor=1.5, mode="nearest-exact"), IMAGES),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (2, 5, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_and_its_gradients(name: str, fallbacks: Fallbacks) -> None:
    build, shape = LAYERS[name]
    results = []
    for device in ("cpu", ON):
        torch.manual_seed(0)
        layer = build().to(device)
        x = drawn(*shape).to(device).requires_grad_()
        out = layer(x)
        out = out[0] if isinstance(out, tuple) else out
        out.sin().sum().backward()
        grads = [parameter.grad for parameter in layer.parameters()]
        results.append([each.detach().cpu() for each in (out, x.grad, *grads) if each is not None])
    assert fallbacks() == {}
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_an_encoder_in_evaluation(fallbacks: Fallbacks) -> None:
    """torch has fused operators for it, which no library of a vendor has: also with rows that are padded."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    here = nn.TransformerEncoder(layer, 2).eval()
    x, padded = drawn(3, 5, 8), torch.arange(5) >= torch.tensor([[5], [3], [4]])
    with torch.no_grad():
        expected = [here(x), here(x, src_key_padding_mask=padded)]
        there = here.to(ON)
        got = [there(x.to(ON)), there(x.to(ON), src_key_padding_mask=padded.to(ON))]
    assert fallbacks() == {}
    # What is padded has no meaning, and torch's ways differ in it.
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu()[~padded], b[~padded], rtol=1e-4, atol=1e-5)


X = drawn(4, 6)
# Name → a call of which all arguments are moved to the device.
CALLS: dict[str, tuple[Callable[..., Tensor | tuple[Tensor, ...]], tuple[Tensor, ...]]] = {
    "huber loss": (lambda x, y: F.huber_loss(x, y, delta=0.4), (X, X.cos())),
    "huber loss, one by one": (
        lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.4),
        (X, X.cos()),
    ),
    "l1 loss": (F.l1_loss, (X, X.cos())),
    "distance of pairs": (F.pairwise_distance, (X, X.cos())),
    "norm": (lambda x: x.norm(3, dim=1), (X,)),
    "sum without nan": (lambda x: (x / x.where(x > 0, 0.0 * x) * 0).nansum(1), (X,)),
    "antialiased": (
        lambda x: F.interpolate(x[None, None], (2, 3), mode="bilinear", antialias=True),
        (X,),
    ),
    "added at places that repeat": (
        lambda x, y: x.scatter_add(0, y.long().expand(3, 6), y.expand(3, 6)),
        (X, torch.ones(1, 1)),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_and_its_gradient(name: str, fallbacks: Fallbacks) -> None:
    call, given = CALLS[name]
    results = []
    for device in ("cpu", ON):
        arguments = [each.to(device) for each in given]
        x = arguments[0].clone().requires_grad_()
        out = call(x, *arguments[1:])
        out.sum().backward()
        results.append([out.detach().cpu(), x.grad.cpu()])
    assert fallbacks() == {}
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5, equal_nan=True)


def test_the_greatest_in_any_order(fallbacks: Fallbacks) -> None:
    """As routers of experts ask for them."""
    values, places = X.to(ON).topk(3, sorted=False)
    assert fallbacks() == {}
    assert torch.equal(values.cpu().sort().values, X.topk(3).values.sort().values)
    assert torch.equal(X.gather(1, places.cpu()), values.cpu())


def test_vectors_of_a_greatest_norm(fallbacks: Fallbacks) -> None:
    places = torch.tensor([0, 2, 2])
    results = []
    for device in ("cpu", ON):
        torch.manual_seed(0)
        layer = nn.Embedding(4, 3, max_norm=0.5).to(device)
        out = layer(places.to(device))
        out.sum().backward()
        results.append([out.detach().cpu(), layer.weight.detach().cpu(), layer.weight.grad.cpu()])
    assert fallbacks() == {}
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_indices_on_the_host(fallbacks: Fallbacks) -> None:
    """torch takes them for tensors of any device."""
    here, there = X.clone(), X.to(ON)
    rows, mask = torch.tensor([2, 0]), torch.tensor([True, False, True, True])
    for x in (here, there):
        x[rows, 1] = torch.tensor([5.0, 6.0]).to(x.device)
        x[mask] += 1
    assert torch.equal(there.cpu(), here)
    assert torch.equal(there[rows].cpu(), here[rows])
    assert torch.equal(there[:, rows].cpu(), here[:, rows])
    assert torch.equal(there[mask].cpu(), here[mask])
    assert fallbacks() == {}
    with pytest.raises(IndexError):
        there[torch.tensor([True, False])]


def test_columns_are_written_beside_each_other(fallbacks: Fallbacks) -> None:
    here, there = X.clone(), X.to(ON)
    for x in (here, there):
        a, b, c = x.chunk(3, 1)
        a.mul_(b).add_(c)
        x[:, -1] = x[:, 0]
        x[1:, ::2] -= x[1:, 1::2]
    assert fallbacks() == {}
    torch.testing.assert_close(there.cpu(), here)
    # Columns that do meet are the CPU's, for which torch leaves open what is read first.
    there[:, 1:4].add_(there[:, :3])
    there.t()[:4].add_(there[:, :4])
    assert fallbacks() == {"aten::add_.Tensor": 2}


def test_what_goes_to_another_device_is_arranged_by_its_own(fallbacks: Fallbacks) -> None:
    x = X.to(ON)
    other = torch.device(ON, 1)
    assert torch.equal(x.t().to(other).cpu(), X.t())
    assert torch.equal(x[:, ::2].to(other, torch.bfloat16).cpu(), X[:, ::2].to(torch.bfloat16))
    into = torch.zeros(6, 4, device=other)
    into.t()[1:] = x[0]
    expected = torch.zeros(6, 4)
    expected.t()[1:] = X[0]
    assert torch.equal(into.cpu(), expected)
    assert fallbacks() == {}


def test_whether_any_byte_is_set() -> None:
    """The result has bytes, which CANN's function does not write."""
    x = torch.tensor([0, 3], dtype=torch.uint8)
    assert x.to(ON).any().cpu() == x.any() and x.to(ON).any().dtype == torch.uint8

"""Fake tensors of the device have the sizes and strides that its kernels give."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore:.*TypedStorage is deprecated")


@pytest.fixture(scope="module", autouse=True)
def _compiler_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


def on_device(*shape: int, **options) -> torch.Tensor:
    return torch.ones(shape, **options).to("flagos")


def channels_last(*shape: int) -> torch.Tensor:
    return on_device(*shape).contiguous(memory_format=torch.channels_last)


def convolved(x: torch.Tensor, weight: torch.Tensor, *, transposed: bool = False) -> torch.Tensor:
    return torch.convolution(x, weight, None, [1, 1], [0, 0], [1, 1], transposed, [0, 0], 1)


CALLS = {
    "convolution": (convolved, on_device(2, 3, 8, 8), on_device(4, 3, 3, 3)),
    "convolution, channels last": (convolved, channels_last(2, 3, 8, 8), on_device(4, 3, 3, 3)),
    "transposed convolution": (
        lambda x, weight: convolved(x, weight, transposed=True),
        channels_last(2, 3, 8, 8),
        on_device(3, 4, 3, 3),
    ),
    "batch norm in evaluation": (
        lambda x, mean, variance: torch.native_batch_norm(
            x, None, None, mean, variance, False, 0.1, 1e-5
        ),
        on_device(2, 3, 4),
        on_device(3),
        on_device(3),
    ),
    "bags with a last offset": (
        lambda weight, indices, offsets: torch.ops.aten._embedding_bag(
            weight, indices, offsets, False, 0, False, None, True
        ),
        on_device(4, 3),
        on_device(4, dtype=torch.int64),
        torch.tensor([0, 2, 4]).to("flagos"),
    ),
    "nonzero_static": (lambda x: torch.nonzero_static(x, size=5), on_device(2, 2)),
    "histc": (lambda x: torch.histc(x, 4), on_device(6)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_promise_of_a_fake_kernel_is_kept(name):
    call, *inputs = CALLS[name]
    mode = FakeTensorMode()
    with mode:
        promised = call(*map(mode.from_tensor, inputs))
    given = call(*inputs)
    assert facts(promised) == facts(given)


def facts(results) -> list[tuple]:
    leaves = torch.utils._pytree.tree_leaves(results)
    return [(x.shape, x.stride(), x.dtype, x.device) for x in leaves]


def test_a_fake_kernel_that_fails_leaves_the_devices_as_they_were():
    mode = FakeTensorMode()
    x = mode.from_tensor(on_device(2, 3))
    with mode, pytest.raises(RuntimeError):
        torch.mm(x, x)
    assert x.device.type == "flagos"


def test_a_fake_copy_to_the_cpu_is_on_the_cpu():
    mode = FakeTensorMode()
    x = mode.from_tensor(on_device(2, 3))
    with mode:
        assert [y.device.type for y in (x.cpu(), x.cpu() + 1, x + 1)] == ["cpu", "cpu", "flagos"]


LAYERS = {
    "convolution": lambda: nn.Conv2d(3, 8, 3),
    "transposed": lambda: nn.ConvTranspose2d(3, 4, 3),
    "depthwise": lambda: nn.Conv2d(3, 3, 3, groups=3),
    "1x1": lambda: nn.Conv2d(3, 8, 1),
    "1d": lambda: nn.Conv1d(8, 4, 3),
}


@pytest.mark.needs("generated_code")
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", LAYERS)
def test_compiled_convolutions_are_what_they_are_without_compiling(name, memory_format):
    layer = LAYERS[name]().to("flagos")
    x = torch.randn(3, 8, 8) if name == "1d" else torch.randn(2, 3, 8, 8)
    x = x.to("flagos")
    if x.dim() == 4:
        layer, x = layer.to(memory_format=memory_format), x.to(memory_format=memory_format)

    def f(x):
        return functional.relu(layer(x)) + 1

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(f)(x), f(x))
    gradients = []
    for function in (f, torch.compile(f)):
        layer.zero_grad()
        function(x).sum().backward()
        gradients.append(layer.weight.grad.clone())
    torch.testing.assert_close(*gradients)

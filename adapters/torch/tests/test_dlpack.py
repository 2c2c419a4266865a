"""DLPack, both ways."""

from __future__ import annotations

import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack


@pytest.mark.host
def test_the_device_of_an_exported_tensor():
    assert torch.ones(2, device="flagos").__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)


def test_the_device_of_other_tensors_is_unchanged():
    assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.usefixtures("two_devices")
def test_the_index_is_exported():
    assert torch.ones(2, device="flagos:1").__dlpack_device__()[1] == 1


@pytest.mark.host
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "exchange",
    [
        pytest.param(from_dlpack, id="protocol"),
        pytest.param(lambda x: from_dlpack(to_dlpack(x)), id="capsule"),
    ],
)
def test_memory_is_shared(exchange, dtype):
    x = torch.zeros(3, 4, dtype=dtype, device="flagos")[:, 1:]
    y = exchange(x)
    assert y.device == x.device and y.stride() == x.stride() and y.data_ptr() == x.data_ptr()
    y.fill_(1)
    assert x.sum().item() == 9


def test_an_imported_tensor_outlives_the_exporter():
    y = from_dlpack(torch.arange(5, device="flagos"))
    assert (y * 2).tolist() == [0, 2, 4, 6, 8]


@pytest.mark.host
def test_an_imported_tensor_computes():
    y = from_dlpack(torch.randn(4, 4, device="flagos"))
    y.requires_grad_()
    (y @ y).sum().backward()
    y.detach().add_(1)
    assert y.grad.device.type == "flagos"


def test_a_tensor_that_requires_grad_is_refused():
    with pytest.raises(BufferError, match="grad"):
        torch.ones(2, device="flagos", requires_grad=True).__dlpack__()

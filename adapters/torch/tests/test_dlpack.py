"""DLPack, both ways."""

from __future__ import annotations

import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack


def test_the_device_of_an_exported_tensor(native):
    kind = DLDeviceType.kDLCUDA if native == "cuda" else DLDeviceType.kDLExtDev
    assert torch.ones(2, device="flagos").__dlpack_device__() == (kind, 0)


def test_the_device_of_other_tensors_is_unchanged():
    assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.usefixtures("two_devices")
def test_the_index_is_exported():
    assert torch.ones(2, device="flagos:1").__dlpack_device__()[1] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "exchange",
    [
        pytest.param(from_dlpack, id="protocol"),
        pytest.param(
            lambda x: from_dlpack(to_dlpack(x)),
            id="capsule",
            marks=pytest.mark.needs("shared_storage"),
        ),
    ],
)
def test_memory_is_shared(exchange, dtype, native):
    x = torch.zeros(3, 4, dtype=dtype, device="flagos")[:, 1:]
    y = exchange(x)
    assert y.device.type == ("cuda" if native == "cuda" else "flagos")
    assert y.stride() == x.stride() and y.data_ptr() == x.data_ptr()
    y.fill_(1)
    assert x.sum().item() == 9


def test_an_imported_tensor_outlives_the_exporter():
    y = from_dlpack(torch.arange(5, device="flagos"))
    assert (y * 2).tolist() == [0, 2, 4, 6, 8]


def test_an_imported_tensor_computes():
    y = from_dlpack(torch.randn(4, 4, device="flagos"))
    y.requires_grad_()
    (y @ y).sum().backward()
    y.detach().add_(1)
    assert y.grad.device == y.device


def test_a_tensor_that_requires_grad_is_refused():
    with pytest.raises(BufferError, match="grad"):
        torch.ones(2, device="flagos", requires_grad=True).__dlpack__()


@pytest.mark.needs("shared_storage")
def test_imported_memory_is_checked_for_overlap():
    for device in ("cpu", "flagos"):
        owner = torch.arange(8.0, device=device)
        x = torch.from_dlpack(owner)
        for write in (
            lambda x=x: x[1:].add_(x[:-1]),
            lambda x=x: torch.mul(x[1:], 2, out=x[:-1]),
            lambda x=x: torch.cumsum(x[1:], 0, out=x[:-1]),
        ):
            with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
                write()
        assert x.tolist() == [float(i) for i in range(8)]
        x[:4].add_(x[4:])
        assert owner.tolist()[:4] == [4.0, 6.0, 8.0, 10.0]


@pytest.mark.needs("shared_storage")
def test_imported_memory_from_several_threads():
    import threading

    x = torch.from_dlpack(torch.zeros(64, device="flagos"))
    failed = []

    def work(row):
        try:
            for _ in range(200):
                row.add_(1)
                with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
                    x[1:].add_(x[:-1])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(row,)) for row in x.view(4, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and x.eq(200).all()

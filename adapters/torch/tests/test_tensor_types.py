"""What `x.type()` names."""

from __future__ import annotations

import pytest
import torch

NAMES = ["Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"]


@pytest.mark.parametrize("name", NAMES)
def test_types_that_are_named_exist(name):
    kind = getattr(torch.flagos, f"{name}Tensor")
    theirs = getattr(torch, f"{name}Tensor")
    x = torch.ones(2, 3).type(theirs).to("flagos")
    assert x.type() == f"torch.flagos.{name}Tensor" == kind.__name__
    assert isinstance(x, kind) and not isinstance(x.cpu(), kind) and not isinstance(1, kind)
    assert isinstance(x.cpu().type(kind), kind)
    assert isinstance(torch.ones(2).type(x.type()), kind)
    assert kind(2, 3).shape == (2, 3) and kind(2, 3).dtype == x.dtype
    assert kind([1, 0]).tolist() == theirs([1, 0]).tolist()
    assert kind().shape == (0,) and kind().device.type == "flagos"
    assert kind is getattr(torch.flagos, f"{name}Tensor")


def test_types_refuse_what_they_are_not():
    with pytest.raises(TypeError, match="of flagos devices, not of cpu"):
        torch.flagos.FloatTensor(2, device="cpu")
    with pytest.raises(TypeError, match="sizes or one sequence"):
        torch.flagos.FloatTensor([1.0], [2.0])
    with pytest.raises(AttributeError, match="ComplexTensor"):
        _ = torch.flagos.ComplexTensor
    assert not isinstance(torch.ones(2, device="flagos").to_sparse(), torch.flagos.FloatTensor)


def test_data_parallel_over_several_devices_names_what_to_use(two_devices):
    net = torch.nn.Linear(2, 2).to("flagos")
    with pytest.raises(NotImplementedError, match="DistributedDataParallel"):
        torch.nn.DataParallel(net)
    x = torch.ones(3, 2, device="flagos")
    assert torch.equal(torch.nn.DataParallel(net, device_ids=[0])(x), net(x))


@pytest.mark.host
def test_pools_and_histories_are_cudas(tmp_path):
    import pickle

    from flagos import UnsupportedError

    for call in (
        torch.flagos.MemPool,
        lambda: torch.flagos.use_mem_pool(None),
        torch.flagos.memory._record_memory_history,
    ):
        with pytest.raises(UnsupportedError, match=r"CUDA's allocator's.*memory_snapshot"):
            call()
    x = torch.empty(1000, device="flagos")
    torch.flagos.memory._dump_snapshot(str(tmp_path / "held.pickle"))
    held = pickle.loads((tmp_path / "held.pickle").read_bytes())
    assert held == torch.flagos.memory._snapshot() and held["segments"][0]["allocated_size"] > 0
    del x

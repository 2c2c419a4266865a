"""The type names of `x.type()`, such as `torch.flagos.FloatTensor`, and devices in `DataParallel`."""

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


def test_data_parallel_of_one_device_is_the_module(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to("flagos")
    x = torch.ones(3, 2, device="flagos")
    parallel = torch.nn.DataParallel(net, device_ids=[0])
    assert list(parallel.state_dict()) == [f"module.{name}" for name in net.state_dict()]
    parallel.eval()
    assert torch.equal(parallel(x), net(x))
    assert torch.equal(parallel(input=x.cpu()), net(x))  # from the CPU too
    parallel(x.cpu()).sum().backward()
    assert all(each.grad.device.type == "flagos" for each in parallel.parameters())
    torch.save(parallel, tmp_path / "net.pt")
    assert torch.equal(torch.load(tmp_path / "net.pt", weights_only=False)(x), net(x))
    assert torch.nn.DataParallel(torch.nn.Linear(2, 2).to("flagos:0"), ["flagos:0"]).module
    with pytest.raises(ValueError, match="cpu is not a flagos device"):
        torch.nn.DataParallel(net, ["cpu"])
    with pytest.raises(ValueError, match="device_ids is empty"):
        torch.nn.DataParallel(net, [])
    for call in (
        lambda: torch.nn.parallel.replicate(net, [0, 0]),
        lambda: torch.nn.parallel.gather([x, x], 0),
    ):
        with pytest.raises(NotImplementedError, match="DistributedDataParallel"):
            call()


def test_data_parallel_over_several_devices_names_what_to_use(two_devices):
    with pytest.raises(NotImplementedError, match="DistributedDataParallel"):
        torch.nn.DataParallel(torch.nn.Linear(2, 2).to("flagos"))


@pytest.mark.host
def test_pools_and_histories_are_of_torchs_allocator(tmp_path):
    import pickle

    from flagos import UnsupportedError

    for call in (
        torch.flagos.MemPool,
        lambda: torch.flagos.use_mem_pool(None),
    ):
        with pytest.raises(UnsupportedError, match=r"an allocator of torch's own.*memory_snapshot"):
            call()
    with pytest.warns(UserWarning, match=r"no history is recorded: .*memory_snapshot"):
        torch.flagos.memory._record_memory_history()
    torch.flagos.memory._record_memory_history(enabled=None)  # no history was begun
    x = torch.empty(1000, device="flagos")
    torch.flagos.memory._dump_snapshot(str(tmp_path / "held.pickle"))
    held = pickle.loads((tmp_path / "held.pickle").read_bytes())
    assert held.keys() == torch.flagos.memory._snapshot().keys()
    assert any(
        segment["address"] <= x.data_ptr() < segment["address"] + segment["total_size"]
        and segment["allocated_size"] >= 4000
        for segment in held["segments"]
    )
    del x

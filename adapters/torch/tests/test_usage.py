"""The usage that people coming from PyTorch-Plugin-FL have in their programs."""

from __future__ import annotations

import pytest
import torch

import torch_fl


def test_a_small_program(native):
    x = torch.randn(4, 4, device="flagos:0")
    y = torch.relu(x @ x)
    there = x.cpu().to(native)
    assert torch.equal(y.cpu(), torch.relu(there @ there).cpu())


@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda x, y: x + y, id="add"),
        pytest.param(torch.mm, id="mm"),
        pytest.param(lambda x, y: torch.softmax(x, dim=-1), id="softmax"),
        pytest.param(lambda x, y: torch.nn.functional.silu(x) * y, id="silu"),
        pytest.param(lambda x, y: torch.cat([x, y]).sum(0), id="cat"),
    ],
)
def test_operators_on_large_tensors(compute, native):
    x, y = torch.randn(1000, 1000), torch.randn(1000, 1000)
    there = compute(x.to("flagos"), y.to("flagos"))
    assert there.device.type == "flagos"
    assert torch.equal(there.cpu(), compute(x.to(native), y.to(native)).cpu())


def test_there_and_back():
    x = torch.randn(3, 3)
    there = x.to("flagos")
    assert there.device == torch.device("flagos", 0)
    assert torch.equal(there.cpu(), x)


@pytest.mark.usefixtures("two_devices")
def test_to_a_device_by_index():
    assert torch.ones(2).to("flagos:1").device == torch.device("flagos", 1)


def test_device_context_through_the_package():
    with torch_fl.flagos.device(0):
        assert torch.randn(10, 10, device="flagos").device.index == 0


def test_synchronize_after_work():
    x = torch.randn(1000, 1000, device="flagos")
    y = x @ x
    torch.flagos.synchronize()
    assert y.shape == (1000, 1000)


def test_status_queries():
    assert torch_fl.flagos.is_available()
    assert torch_fl.flagos.device_count() >= 1
    assert torch_fl.flagos.current_device() == 0
    torch_fl.flagos.synchronize()


def test_registered_operators_are_the_ones_that_run():
    registered = torch_fl.get_registered_ops()
    assert {"aten::add.Tensor", "aten::mm", "aten::_softmax", "aten::copy_"} <= set(registered)
    assert registered == sorted(set(registered)) and len(registered) > 1300


def test_flaggems_is_not_reported_where_it_is_not():
    try:
        import flag_gems  # noqa: F401
    except ImportError:
        assert torch_fl.is_flaggems_enabled() is False
    else:
        pytest.skip("FlagGems is installed")


@pytest.mark.flaggems
def test_flaggems_is_reported_where_it_is():
    assert torch_fl.is_flaggems_enabled() is True


def test_device_query_prints():
    properties = torch.flagos.get_device_properties(0)
    assert f"{properties.name}: {properties.total_memory / 1024**3:.2f} GB"


def test_amp_training_step():
    model = torch.nn.Linear(512, 512, device="flagos:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("flagos")
    inputs = torch.randn(8, 512, device="flagos:0")
    target = torch.randn(8, 512, device="flagos:0")
    before = model.weight.detach().clone()
    with torch.autocast("flagos", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(inputs), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model.weight, before)

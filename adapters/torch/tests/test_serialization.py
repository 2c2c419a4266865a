"""torch.save and torch.load."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn


def saved(value: object, **options: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zipfile", [True, False])
def test_tensors_come_back_to_their_device(zipfile, weights_only):
    x = torch.randn(3, 4, device="flagos")
    back = torch.load(saved(x, _use_new_zipfile_serialization=zipfile), weights_only=weights_only)
    assert back.device == x.device and torch.equal(back, x)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    ("source", "map_location", "expected"),
    [
        ("flagos", "cpu", "cpu"),
        ("flagos", torch.device("cpu"), "cpu"),
        ("flagos", {"flagos:0": "cpu"}, "cpu"),
        ("flagos", lambda storage, where: storage.cpu(), "cpu"),
        ("cpu", "flagos", "flagos:0"),
        ("cpu", "flagos:0", "flagos:0"),
        ("cpu", torch.device("flagos"), "flagos:0"),
        ("cpu", {"cpu": "flagos:0"}, "flagos:0"),
        ("cpu", lambda storage, where: storage.flagos(), "flagos:0"),
        ("flagos", "meta", "meta"),
    ],
)
def test_map_location(source, map_location, expected, weights_only):
    x = torch.arange(6.0, device=source)
    back = torch.load(saved(x), map_location=map_location, weights_only=weights_only)
    assert str(back.device) == expected
    if expected != "meta":
        assert back.tolist() == x.tolist()


@pytest.mark.usefixtures("two_devices")
def test_map_location_between_devices():
    x = torch.arange(3, device="flagos:1")
    assert torch.load(saved(x)).device.index == 1
    assert torch.load(saved(x), map_location="flagos:0").device.index == 0
    assert torch.load(saved(x), map_location={"flagos:1": "flagos:0"}).device.index == 0


def test_a_device_that_is_not_there_is_explained():
    file = saved(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"FLAGOS device 7.*device_count\(\)"):
        torch.load(file, map_location="flagos:7")


def test_a_checkpoint_of_cuda_loads(monkeypatch):
    # torch writes a CUDA tensor as one of the CPU, but for the location.
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    file = saved(torch.arange(3.0))
    assert torch.load(file, map_location="flagos").tolist() == [0, 1, 2]


def test_views_of_one_storage_stay_views_of_one():
    x = torch.zeros(4, device="flagos")
    back = torch.load(saved({"whole": x, "part": x[1:3]}))
    back["part"].fill_(1)
    assert back["whole"].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.randn(4, device="flagos", dtype=torch.bfloat16), id="bf16"),
        pytest.param(lambda: torch.randn(4, device="flagos", dtype=torch.complex64), id="complex"),
        pytest.param(lambda: nn.Parameter(torch.randn(4, device="flagos")), id="parameter"),
        pytest.param(lambda: torch.eye(3, device="flagos").to_sparse(), id="coo"),
        pytest.param(lambda: torch.eye(3, device="flagos").to_sparse_csr(), id="csr"),
        pytest.param(lambda: torch.empty(0, 3, device="flagos"), id="empty"),
        pytest.param(lambda: torch.randn(4, 4, device="flagos").t(), id="transposed"),
    ],
)
def test_kinds_of_tensors(make):
    x = make()
    back = torch.load(saved(x))
    assert back.device == x.device and back.layout == x.layout and type(back) is type(x)
    assert torch.equal(back.to_dense().cpu(), x.to_dense().cpu())


def test_training_state_round_trip():
    model = nn.Linear(3, 2).to("flagos")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device="flagos")).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    back = torch.load(saved(state), weights_only=True)
    other = nn.Linear(3, 2).to("flagos")
    other.load_state_dict(back["model"])
    assert torch.equal(other.weight, model.weight)
    assert back["optimizer"]["state"][0]["exp_avg"].device.type == "flagos"


def test_memory_mapped_files(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(torch.arange(100.0), path)
    assert torch.load(path, mmap=True, map_location="flagos").sum().item() == 4950


def test_rng_state_in_a_checkpoint():
    state = torch.load(saved(torch.flagos.get_rng_state()))
    torch.flagos.set_rng_state(state)


def test_a_file_of_this_device_opens_where_there_is_none(run_python, tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3, device="flagos"), path)
    script = f"""
    import torch
    print(torch.load({str(path)!r}, map_location="cpu").tolist())
    """
    assert run_python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.strip() == "[0, 1, 2]"


def test_checkpoints_of_flagos_are_written_where_torch_prefers_another_device() -> None:
    """torch's own loader hands on what is not on the first kind of device it finds, and then refuses it."""
    from torch.distributed.checkpoint import filesystem

    from torch_fl.distributed import checkpoint

    x = torch.arange(4.0, device="flagos")
    written = {}
    for loader in (filesystem._OverlappingCpuLoader, checkpoint._Loader):
        one = loader(lambda _: x)
        one.device_type = "cpu"  # for CUDA, which is not here
        one.add(1, "x")
        ((written[loader], _),) = one.values()
    ours, theirs = written.values()
    assert ours.tolist() == [0, 1, 2, 3] and ours.device.type == "cpu"
    assert theirs.device.type == "flagos"

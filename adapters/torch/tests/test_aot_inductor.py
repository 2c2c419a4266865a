"""Packages of AOTInductor on the host vendor. Under the cuda vendor they are made on `cuda` views."""

from __future__ import annotations

import pytest
import torch

from torch_fl.compile import ahead_of_time

pytestmark = pytest.mark.host


def test_a_tensor_and_its_view_for_the_package_share_memory():
    x = torch.arange(12.0, device="flagos").view(3, 4)[1:, ::2]
    shared = ahead_of_time._shared(x)
    assert shared.device.type == "cpu" and shared.stride() == x.stride()
    assert shared.tolist() == [[4.0, 6.0], [8.0, 10.0]]
    shared.zero_()
    assert x.tolist() == [[0.0, 0.0]] * 2
    result = torch.arange(4.0)[1:]
    given = ahead_of_time._given(result, 0)
    assert given.device == torch.device("flagos:0") and given.tolist() == [1.0, 2.0, 3.0]
    result.zero_()
    assert given.tolist() == [0.0] * 3
    assert ahead_of_time._given(result, -1) is result


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w = torch.nn.Parameter(torch.randn(8, 8))
        self.register_buffer("b", torch.arange(8.0))

    def forward(self, input, *, host=None):
        y = (input @ self.w + self.b).relu()
        counted = torch.arange(8, device=input.device) * 2
        return {"y": y.t(), "counted": counted, "sum": y.sum(), "host": host.sin()}, input


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """A program on the device, and what its package is called with."""
    model = Model().to("flagos").eval()
    example = torch.randn(4, 8, device="flagos"), {"host": torch.randn(3)}
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(
        model, (example[0],), example[1], dynamic_shapes={"input": {0: rows}, "host": None}
    )
    graph = str(program.graph)
    path = str(tmp_path_factory.mktemp("packages") / "model.pt2")
    assert torch._inductor.aoti_compile_and_package(program, package_path=path) == path
    assert str(program.graph) == graph, "the program stays as it was"
    assert {x.device.type for x in program.state_dict.values()} == {"flagos"}
    return model, torch._inductor.aoti_load_package(path)


@pytest.mark.slow
def test_results_are_on_their_devices_and_those_of_the_model(packaged):
    model, package = packaged
    for rows in (4, 7):
        x, host = torch.randn(rows, 8, device="flagos"), torch.randn(3)
        (ours, same), (theirs, _) = package(x, host=host), model(x, host=host)
        for name, value in theirs.items():
            assert ours[name].device == value.device and ours[name].stride() == value.stride()
            torch.testing.assert_close(ours[name].cpu(), value.cpu())
        assert same.device.type == "flagos" and torch.equal(same, x)
    ours["y"].add_(1)  # like any other tensor of the device
    assert ours["y"].untyped_storage().device.type == "flagos"


@pytest.mark.slow
def test_a_package_waits_for_the_stream(packaged):
    model, package = packaged
    x, host = torch.randn(64, 8, device="flagos"), torch.randn(3)
    with torch.Stream(device="flagos") as stream:
        found = package((x * 3).cos(), host=host)[0]["y"]
    stream.synchronize()
    torch.testing.assert_close(found, model((x * 3).cos(), host=host)[0]["y"])


@pytest.mark.slow
def test_arguments_on_other_devices_are_refused(packaged):
    _, package = packaged
    x = torch.randn(4, 8, device="flagos")
    with pytest.raises(ValueError, match=r"tensor 0 .* is on flagos:0, got one on cpu"):
        package(x.cpu(), host=torch.randn(3))
    with pytest.raises(ValueError, match=r"tensor 1 .* is on cpu, got one on flagos:0"):
        package(x, host=torch.randn(3).to("flagos"))


@pytest.mark.slow
def test_packages_for_the_cpu_are_as_they_were(tmp_path):
    model = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    path = torch._inductor.aoti_compile_and_package(
        torch.export.export(model, (x,)), package_path=str(tmp_path / "cpu.pt2")
    )
    found = torch._inductor.aoti_load_package(path)(x)
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, model(x))

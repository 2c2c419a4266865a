"""Devices: which there are, which is current, what they are."""

from __future__ import annotations

import pytest
import torch
from torch import flagos

import torch_fl
from torch_fl.native import native


def test_the_module_is_one_under_every_name():
    import torch.flagos as as_submodule

    import torch_fl.flagos as as_package

    assert torch.flagos is torch_fl.flagos is as_submodule is as_package is flagos
    assert torch.get_device_module("flagos") is flagos


@pytest.mark.parametrize("name", ["amp", "memory", "random", "graphs"])
def test_submodules_are_one_under_every_name(name):
    import importlib

    assert importlib.import_module(f"torch.flagos.{name}") is getattr(flagos, name)


def test_every_public_name_exists():
    assert [name for name in flagos.__all__ if not hasattr(flagos, name)] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"torch\.flagos.*no_such_thing"):
        flagos.no_such_thing  # noqa: B018


def test_is_available():
    assert flagos.is_available() is True
    assert torch.accelerator.is_available() is True


def test_the_accelerator_is_flagos():
    assert torch.accelerator.current_accelerator() == torch.device("flagos")
    assert torch.accelerator.device_count() == flagos.device_count() >= 1


def test_init_is_idempotent():
    flagos.init()
    flagos.init()
    assert flagos.is_initialized()


@pytest.mark.parametrize("device", [0, "flagos:0", torch.device("flagos", 0)])
def test_set_device_takes(device):
    flagos.set_device(device)
    assert flagos.current_device() == 0


def test_set_device_with_a_negative_index_changes_nothing():
    flagos.set_device(-1)
    assert flagos.current_device() == 0


@pytest.mark.usefixtures("two_devices")
class TestTwoDevices:
    @pytest.mark.parametrize("device", [1, "flagos:1", torch.device("flagos", 1)])
    def test_device_context(self, device):
        with flagos.device(device):
            assert flagos.current_device() == 1
            assert torch.empty(1, device="flagos").device.index == 1
        assert flagos.current_device() == 0

    def test_device_context_restores_after_an_exception(self):
        with pytest.raises(KeyError), flagos.device(1):
            raise KeyError
        assert flagos.current_device() == 0

    def test_device_context_can_be_nested_and_reused(self):
        there = flagos.device(1)
        with there:
            with flagos.device(0):
                assert flagos.current_device() == 0
            assert flagos.current_device() == 1
        with there:
            assert flagos.current_device() == 1

    def test_device_context_of_none_changes_nothing(self):
        with flagos.device(None):
            assert flagos.current_device() == 0

    def test_device_of(self):
        there = torch.empty(1, device="flagos:1")
        for thing in (there, there.untyped_storage()):
            with flagos.device_of(thing):
                assert flagos.current_device() == 1
        with flagos.device_of(torch.empty(1)):
            assert flagos.current_device() == 0

    def test_exchange_device(self):
        assert flagos.exchange_device(1) == 0
        assert flagos.maybe_exchange_device(0) == 1
        assert flagos.exchange_device(-1) == -1

    def test_current_device_belongs_to_the_thread(self):
        import threading

        seen = []
        with flagos.device(1):
            thread = threading.Thread(target=lambda: seen.append(flagos.current_device()))
            thread.start()
            thread.join()
        assert seen == [0]

    def test_tensors_cross_between_devices(self):
        x = torch.arange(4, device="flagos:0")
        y = x.to("flagos:1")
        assert y.device.index == 1 and y.tolist() == [0, 1, 2, 3]
        assert y.data_ptr() != x.data_ptr()

    def test_tensors_of_two_devices_do_not_mix(self):
        with pytest.raises(RuntimeError, match="same device"):
            torch.ones(2, device="flagos:0") + torch.ones(2, device="flagos:1")

    def test_peer_access(self):
        # Devices of a library reach each other through the host.
        assert flagos.can_device_access_peer(0, 1) or native().device_type is None


def test_set_default_device():
    with torch.device("flagos"):
        assert torch.ones(2).device.type == "flagos"
    assert torch.ones(2).device.type == "cpu"


def test_properties():
    properties = flagos.get_device_properties(0)
    assert properties.name == flagos.get_device_name(0) == flagos.get_device_name()
    assert properties.total_memory > 0
    assert properties.multi_processor_count > 0
    assert (properties.major, properties.minor) == flagos.get_device_capability("flagos:0")
    with pytest.raises(AttributeError):
        properties.name = "other"


def test_capability_lists_dtypes():
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool} <= supported


def test_bf16_is_supported():
    assert flagos.is_bf16_supported() is True


@pytest.mark.host
@pytest.mark.parametrize(
    "ask",
    [
        lambda: flagos.get_device_properties(99),
        lambda: flagos.get_rng_state(99),
        lambda: flagos.set_device(99),
        lambda: torch.empty(1, device="flagos:99"),
        lambda: torch.ones(1).to("flagos:99"),
    ],
)
def test_a_device_that_is_not_there(ask):
    with pytest.raises((ValueError, RuntimeError), match="99"):
        ask()
    assert torch.ones(2, device="flagos").sum().item() == 2


@pytest.mark.parametrize("device", ["cpu", torch.device("meta")])
def test_a_device_of_another_type(device):
    with pytest.raises(ValueError, match="flagos"):
        flagos.set_device(device)


def test_device_handle_of_a_tensor():
    x = torch.empty(1, device="flagos")
    assert x.is_flagos and not x.is_cpu and not torch.empty(1).is_flagos
    assert x.get_device() == 0

"""The one class answers every question of both trainers, by `torch.flagos`."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from pathlib import Path
from typing import Any

import pytest
import torch

from flagos_trainers.accelerator import Accelerator, unanswered

SEAM = Path(__file__).with_name("seam")
BASES = {
    "DeepSpeedAccelerator": "deepspeed/accelerator/abstract_accelerator.py",
    "PlatformBase": "megatron/plugin/platform/platform_base.py",
}


def base(name: str) -> type:
    spec = importlib.util.spec_from_file_location(name, SEAM / BASES[name])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type = getattr(module, name)
    return found


@pytest.fixture
def accelerator() -> Any:
    return Accelerator()


# What the classes for the trainers add, as DeepSpeed's base and Megatron's do not mean the same by it.
OWN = {
    "DeepSpeedAccelerator": ["create_op_builder", "get_op_builder", "op_builder_dir"],
    "PlatformBase": ["is_pinned", "pin_memory"],
}


@pytest.mark.parametrize("name", BASES)
def test_every_abstract_name_is_answered(name: str) -> None:
    assert unanswered(type("Class", (Accelerator, base(name)), {})) == OWN[name]


def test_a_name_of_a_newer_release_is_found() -> None:
    class Newer(base("PlatformBase")):  # type: ignore[misc]
        @abstractmethod
        def warp_size(self) -> int: ...

    assert "warp_size" in unanswered(type("Class", (Accelerator, Newer), {"warp_speed": None}))


def test_ranges_are_those_of_a_profiler_that_runs(accelerator: Any) -> None:
    accelerator.range_push("before")
    with torch.profiler.profile() as profiler:
        accelerator.range_push("outer")
        with accelerator.range("inner"):
            torch.ones(2) + 1
        accelerator.range_pop()
        accelerator.range_pop()  # what was open before
        accelerator.range_pop()  # one too many
    accelerator.range_push("after")
    accelerator.range_pop()
    names = {event.name for event in profiler.events()}
    assert {"outer", "inner"} <= names and not {"before", "after"} & names


def test_ranks_share_the_devices_there_are(accelerator: Any) -> None:
    count = torch.flagos.device_count()  # type: ignore[attr-defined]
    assert accelerator.device_name() == "flagos"
    assert accelerator.device_name("0") == accelerator.device_name(0) == "flagos:0"
    assert accelerator.device_name(count) == accelerator.device_name(torch.device("flagos", 0))
    accelerator.set_device(count)
    assert accelerator.current_device_name() == "flagos:0"
    with pytest.raises(ValueError, match="no flagos device"):
        accelerator.device_name("cpu")


def test_tensor_types_are_types(accelerator: Any) -> None:
    x = torch.ones(2, device="flagos", dtype=torch.float16)
    assert isinstance(x, accelerator.HalfTensor) and not isinstance(x, accelerator.FloatTensor)
    assert accelerator.IntTensor([3]).item() == 3
    assert accelerator.on_accelerator(x) and not accelerator.on_accelerator(x.cpu())


def test_random_numbers_are_those_of_the_device(accelerator: Any) -> None:
    state = accelerator.get_rng_state()
    first = torch.rand(4, device="flagos")
    accelerator.set_rng_state(state)
    assert torch.equal(first, torch.rand(4, device="flagos"))
    assert torch.equal(accelerator.default_generator(0).get_state(), accelerator.get_rng_state(0))


def test_streams_and_memory_are_the_devices(accelerator: Any) -> None:
    assert not accelerator.is_synchronized_device() and not accelerator.use_host_timers()
    with accelerator.stream(accelerator.Stream()):
        event = accelerator.Event()
        kept = torch.ones(1 << 16, device="flagos")
        event.record()
    event.synchronize()
    assert accelerator.memory_allocated() >= kept.nbytes
    assert accelerator.total_memory() >= accelerator.available_memory() > 0
    assert torch.bfloat16 in accelerator.supported_dtypes()


def test_launchers_get_a_variable_and_those_of_flagos(
    accelerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGOS_STRICT", "0")
    environment: dict[str, str] = {}
    accelerator.set_visible_devices_envs(environment, [1, 3])
    assert environment == {accelerator.visible_devices_envs()[0]: "1,3"}
    assert "FLAGOS_STRICT" in accelerator.export_envs()


def test_what_nobody_knows_is_an_error(accelerator: Any) -> None:
    with pytest.raises(NotImplementedError, match="temperature"):
        accelerator.temperature()
    with pytest.raises(ValueError, match="inductor"):
        accelerator.set_compile_backend("no such")

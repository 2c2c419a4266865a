"""The device as trainers ask about it: one class over `torch.flagos`, without a trainer.

DeepSpeed's `DeepSpeedAccelerator` and Megatron-LM-FL's `PlatformBase` are of one descent and name the same questions.
The class for a trainer is ``class X(Accelerator, TheirBase)``: Accelerator comes first, so its methods answer the
abstract ones, and `unanswered` names those that a newer release has added.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import torch

from flagos import _core
from torch_fl.cuda_names import nvtx

DEVICE = "flagos"


def unanswered(accelerator: type) -> list[str]:
    """The abstract names of a trainer's base that a class does not define."""
    return sorted(getattr(accelerator, "__abstractmethods__", ()))


def _device() -> Any:
    return torch.flagos  # type: ignore[attr-defined]


def _function(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return getattr(_device(), name)(*arguments, **named)

    method.__name__ = name
    method.__doc__ = f"`torch.flagos.{name}`."
    return method


def _type(name: str) -> Any:
    # Types, not functions that make tensors: Megatron asks `isinstance(x, platform.HalfTensor)`.
    return property(lambda self: getattr(_device(), name), doc=f"`torch.flagos.{name}`.")


class Accelerator:
    """Answers for the devices that torch calls flagos."""

    _name = DEVICE
    _communication_backend_name = DEVICE
    _compile_backend = "inductor"

    current_device = _function("current_device")
    device_count = _function("device_count")
    is_available = _function("is_available")
    synchronize = _function("synchronize")
    get_device_properties = _function("get_device_properties")
    get_device_capability = _function("get_device_capability")
    manual_seed = _function("manual_seed")
    manual_seed_all = _function("manual_seed_all")
    initial_seed = _function("initial_seed")

    Stream, Event, MemPool = _type("Stream"), _type("Event"), _type("MemPool")
    stream = _function("stream")
    set_stream = _function("set_stream")
    current_stream = _function("current_stream")
    default_stream = _function("default_stream")
    is_current_stream_capturing = _function("is_current_stream_capturing")

    use_mem_pool = _function("use_mem_pool")
    empty_cache = _function("empty_cache")
    memory_allocated = _function("memory_allocated")
    max_memory_allocated = _function("max_memory_allocated")
    memory_reserved = memory_cached = _function("memory_reserved")
    max_memory_reserved = max_memory_cached = _function("max_memory_reserved")
    memory_stats = _function("memory_stats")
    reset_peak_memory_stats = _function("reset_peak_memory_stats")
    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    is_bf16_supported = _function("is_bf16_supported")
    FloatTensor, DoubleTensor = _type("FloatTensor"), _type("DoubleTensor")
    HalfTensor, BFloat16Tensor = _type("HalfTensor"), _type("BFloat16Tensor")
    IntTensor, LongTensor, ByteTensor = _type("IntTensor"), _type("LongTensor"), _type("ByteTensor")

    def __init__(self) -> None:
        """Not the bases' own, which would set `_name` to None."""

    # Trainers leave out streams and events where these are true.
    def is_synchronized_device(self) -> bool:
        """Whether calls return when the work is done: no."""
        return False

    use_host_timers = resolves_data_dependency = handles_memory_backpressure = (
        is_synchronized_device
    )

    # ---- Which device. Trainers number devices by local rank, and ranks of a host may share one.

    def _shared(self, index: int | str | torch.device | None) -> int | None:
        if isinstance(index, str) and index.isdecimal():
            index = int(index)  # DeepSpeed's zero.Init passes LOCAL_RANK as the environment has it
        elif isinstance(index, str | torch.device):
            device = torch.device(index)
            if device.type != DEVICE:
                raise ValueError(f"{index} is no flagos device: give a number or 'flagos:0'")
            index = device.index
        if index is None:
            return None
        count: int = _device().device_count()
        return index % count if count else index  # without a device torch.flagos has the reason

    def device_name(self, device_index: int | str | torch.device | None = None) -> str:
        """``flagos``, or ``flagos:<n>`` of the device of a local rank."""
        index = self._shared(device_index)
        return DEVICE if index is None else f"{DEVICE}:{index}"

    def device(self, device_index: int | str | torch.device | None = None) -> Any:
        """A context in which the device of a local rank is the current one; DeepSpeed's meaning."""
        return _device().device(self._shared(device_index))

    def set_device(self, device_index: int | str | torch.device) -> None:
        """Makes the device of a local rank the current one."""
        _device().set_device(self._shared(device_index))

    def current_device_name(self) -> str:
        """As ``flagos:0``."""
        return f"{DEVICE}:{_device().current_device()}"

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on a flagos device."""
        return tensor.device.type == DEVICE

    # ---- Random numbers

    def random(self) -> ModuleType:
        """`torch.random`."""
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: Any = None) -> None:
        """Sets the state of a device's generator."""
        _device().set_rng_state(new_state, DEVICE if device_index is None else device_index)

    def get_rng_state(self, device_index: Any = None) -> torch.Tensor:
        """The state of a device's generator."""
        state: torch.Tensor = _device().get_rng_state(
            DEVICE if device_index is None else device_index
        )
        return state

    def default_generator(self, device_index: int) -> torch.Generator:
        """The generator of the device of a local rank."""
        generator: torch.Generator = self.default_generators[self._shared(device_index) or 0]
        return generator

    @property
    def default_generators(self) -> Any:
        """The generators of all devices."""
        _device().init()
        return _device().default_generators

    # ---- Graphs

    def create_graph(self) -> Any:
        """An empty graph."""
        return _device().Graph()

    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Any:
        """A context whose work is recorded into a graph."""
        return _device().graph(graph, pool=pool, stream=stream)

    def replay_graph(self, graph: Any) -> None:
        """Runs a graph."""
        graph.replay()

    # ---- Memory

    def total_memory(self, device_index: int | None = None) -> int:
        """Bytes of a device."""
        return int(_device().mem_get_info(self._shared(device_index))[1])

    def available_memory(self, device_index: int | None = None) -> int:
        """Free bytes of a device."""
        return int(_device().mem_get_info(self._shared(device_index))[0])

    # ---- Data types

    def _dtypes(self) -> Any:
        capability = torch.accelerator.get_device_capability(_device().current_device())
        return capability["supported_dtypes"]

    def is_fp16_supported(self) -> bool:
        """Whether the device computes in float16."""
        return torch.float16 in self._dtypes()

    def is_fp64_supported(self) -> bool:
        """Whether the device computes in float64."""
        return torch.float64 in self._dtypes()

    def supported_dtypes(self) -> list[torch.dtype]:
        """Those of float32, float16 and bfloat16 that the device computes in."""
        known = self._dtypes()
        return [dtype for dtype in (torch.float32, torch.float16, torch.bfloat16) if dtype in known]

    # ---- The rest

    def lazy_call(self, callback: Callable[[], Any]) -> None:
        """Calls back at once: there is no state to wait for."""
        callback()

    def communication_backend_name(self) -> str:
        """torch.distributed's backend ``flagos``, which finds the engine of the vendor."""
        return DEVICE

    def communication_backend_version(self) -> tuple[int, int]:
        """Trainers compare this with NCCL's numbers, which the backend does not have."""
        return (0, 0)

    def is_triton_supported(self) -> bool:
        """False: the trainers' own Triton kernels say `torch.cuda.device`."""
        return False

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:
        """Opens a range of torch's profiler."""
        nvtx.range_push(msg)

    def range_pop(self, domain: Any = None) -> None:
        """Closes the range that was opened last."""
        nvtx.range_pop()

    def range(self, msg: str, *arguments: Any, **named: Any) -> AbstractContextManager[Any]:
        """A range of torch's profiler around a block."""
        return nvtx.range(msg, *arguments, **named)

    def amp(self) -> ModuleType:
        """`torch.flagos.amp`."""
        amp: ModuleType = _device().amp
        return amp

    def build_extension(self) -> type:
        """torch's command that builds extensions."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def export_envs(self) -> list[str]:
        """The variables that a launcher must hand to other hosts."""
        return [name for name in os.environ if name.startswith("FLAGOS_")]

    def visible_devices_envs(self) -> list[str]:
        """The vendor's variable for the devices that a process sees.

        The host vendor has none, and launchers read and write the first: it gets CUDA's, which it ignores.
        """
        names = [variable["name"] for variable in _core.vendor_info()["variables"]]
        return [name for name in names if name.endswith("VISIBLE_DEVICES")] or [
            "CUDA_VISIBLE_DEVICES"
        ]

    def set_visible_devices_envs(
        self, current_env: dict[str, str], local_accelerator_ids: list[int]
    ) -> None:
        """Writes the devices into the environment of a process."""
        for name in self.visible_devices_envs():
            current_env[name] = ",".join(map(str, local_accelerator_ids))

    def get_compile_backend(self) -> str:
        """The backend of torch.compile."""
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Chooses the backend of torch.compile. Raises ValueError for one that is not registered."""
        known = torch._dynamo.list_backends(exclude_tags=())
        if backend not in known:
            raise ValueError(f"{backend} is no backend of torch.compile: {', '.join(known)}")
        self._compile_backend = backend

    def temperature(self) -> int:
        """Raises NotImplementedError, as the other figures of the board do: no vendor of flagos gives them."""
        raise NotImplementedError(
            "flagos has no figures of the board (temperature, power, utilization, clock): take the vendor's own tool"
        )

    power_draw = utilization = clock_rate = temperature

"""Decisions of Inductor for its C++ code generator that depend on the name of the device.

Inductor 2.11 knows the device types its own back ends serve and treats any other as a GPU under
Triton. These are the decisions that must come out as for the CPU because the same generator writes
the code; preferences that only concern speed are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config, ir, scheduler, utils
from torch._inductor.autotune_process import CPUDeviceBenchmarkMixin, GPUDeviceBenchmarkMixin
from torch._inductor.codegen import common
from torch._inductor.kernel import mm_common
from torch._inductor.runtime.benchmarking import Benchmarker
from torch._inductor.virtualized import V

_DEVICE = "flagos"

_backend_of_device = utils.get_current_backend
_is_cpu = ir.is_cpu
_infer_device = Benchmarker.infer_device
_benchmark_on_gpu = GPUDeviceBenchmarkMixin.do_bench


def _current_backend(device_type: str | None = None) -> str:
    # Dtypes and shapes inside a kernel are propagated by the rules of the language of the kernel.
    device_type = device_type or V.graph.get_current_device_or_throw().type
    return config.cpu_backend if device_type == _DEVICE else _backend_of_device(device_type)


def _reads_as_cpu(x: Any) -> bool:
    return _is_cpu(x) or ir.get_device_type(x) == _DEVICE


def _node_reads_as_cpu(node: scheduler.BaseSchedulerNode) -> bool:
    # Decides whether loops may be reordered, which breaks the C++ generator.
    device = node.get_device()
    return device is not None and device.type in ("cpu", _DEVICE)


def _timed_as(self: Benchmarker, *args: Any, **kwargs: Any) -> torch.device:
    # Kernels of the host vendor finish before the call returns, so a clock on the host times them.
    device = _infer_device(self, *args, **kwargs)
    return torch.device("cpu") if device.type == _DEVICE else device


def _benchmark(self: Any, fn: Any, *tensors: Any, **kwargs: Any) -> float:
    if any(isinstance(t, torch.Tensor) and t.device.type == _DEVICE for t in tensors):
        return CPUDeviceBenchmarkMixin.do_bench(self, fn, *tensors, **kwargs)
    return _benchmark_on_gpu(self, fn, *tensors, **kwargs)


def install() -> None:
    """Apply the decisions. Other devices keep Inductor's own."""
    decisions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "get_current_backend": (_current_backend, (utils, common, scheduler, mm_common)),
        "is_cpu": (_reads_as_cpu, (ir,)),
        "infer_device": (_timed_as, (Benchmarker,)),
        "do_bench": (_benchmark, (GPUDeviceBenchmarkMixin,)),
    }
    for name, (decision, places) in decisions.items():
        for place in places:
            setattr(place, name, decision)
    setattr(scheduler.BaseSchedulerNode, "is_cpu", _node_reads_as_cpu)  # noqa: B010

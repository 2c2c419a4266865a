"""Inductor code generation for the host vendor: C++ kernels that work on device memory in place.

The memory of the host vendor is host memory, so the kernels Inductor writes for the CPU take the
device's pointers as they are. What differs is the wrapper around them: it allocates on the device,
and lets the work queued on the current stream finish before a kernel reads what it produced.

torch._inductor.codegen.common finds these classes through `torch.flagos`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NoReturn

import torch
from torch._inductor import config
from torch._inductor.codegen.common import register_device_op_overrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpp_flex_attention_template import CppFlexAttentionTemplate
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import (
    PythonWrapperCodegen as BaseWrapper,
)
from torch._inductor.codegen.wrapper import (
    SubgraphPythonWrapperCodegen as BaseSubgraphWrapper,
)
from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

from torch_fl.compile import as_cpu

__all__ = [
    "CppWrapperCodegen",
    "PythonWrapperCodegen",
    "Scheduling",
    "WrapperFxCodegen",
]

_DEVICE = "flagos"


class Scheduling(CppScheduling):
    """Inductor's C++ backend without one fusion, which it chooses but cannot generate."""

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        """Never fuse into FlexAttention's template, which cannot write an epilogue."""
        template = getattr(node1.get_template_node(), "template", None)
        if isinstance(template, CppFlexAttentionTemplate):
            return False
        return bool(super().can_fuse_vertical(node1, node2))


class _HostWrapper(BaseWrapper):
    """The common part of the wrappers of whole graphs and of subgraphs."""

    def make_allocation(
        self,
        name: str,
        device: Any,
        dtype: Any,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> str:
        if device.type != _DEVICE:
            line = super().make_allocation(
                name, device, dtype, shape, stride, allocation_shape, is_pinned
            )
            return str(line)
        wanted = self.codegen_python_shape_tuple(shape)
        allocated = self.codegen_python_shape_tuple(allocation_shape or shape)
        strides = self.codegen_python_shape_tuple(stride)
        line = (
            f"{name} = empty_strided({allocated}, {strides}, "
            f"device='{_DEVICE}:{device.index}', dtype={dtype})"
        )
        return line if wanted == allocated else f"{line}.as_strided({wanted}, {strides})"

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Any,
        *,
        device: Any = None,
        triton: bool = True,
        **rest: Any,
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if triton or device.type != _DEVICE:
            super()._generate_kernel_call_helper(
                kernel_name, call_args, device=device, triton=triton, **rest
            )
            return
        self.writeline(f"flagos_join_stream({device.index})")
        self.writeline(self.wrap_kernel_call(kernel_name, call_args))


class PythonWrapperCodegen(_HostWrapper):
    """The Python code around the kernels of a graph."""

    def write_header(self) -> None:
        super().write_header()
        self.header.writeline("flagos_join_stream = torch.ops.flagos.drain.default")

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: BaseWrapper | None,
        partition_signatures: Any = None,
    ) -> BaseWrapper:
        if not is_subgraph:
            return PythonWrapperCodegen()
        assert subgraph_name is not None and parent_wrapper is not None
        return _SubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)


class _SubgraphWrapper(BaseSubgraphWrapper, _HostWrapper):
    """The Python code around the kernels of a branch or a loop body."""


class CppWrapperCodegen(BaseWrapper):
    """Refuses: code without a Python wrapper would need the device in AOTInductor's C shim."""

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> NoReturn:
        from flagos import UnsupportedError

        raise UnsupportedError(
            "torch._inductor.config.cpp_wrapper is not supported on the flagos device: leave it off. Packages of "
            "AOTInductor are made by torch._inductor.aoti_compile_and_package, of an exported program"
        )


def _lower_by_kernel(operator: Any) -> None:
    """Has the operator's own kernel run on the device, as it does on the CPU."""
    theirs = lowerings[operator]

    def lower(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        ours = tensor.get_device().type == _DEVICE
        with config.patch(fallback_random=True) if ours else nullcontext():
            return theirs(tensor, *args, **kwargs)

    lowerings[operator] = lower


for _operator in lowerings.keys() & {
    torch.ops.aten.bernoulli_.float,
    torch.ops.aten.bernoulli_.Tensor,
    torch.ops.aten.bernoulli.p,
}:
    _lower_by_kernel(_operator)
register_device_op_overrides(_DEVICE, CpuDeviceOpOverrides())
as_cpu.install()

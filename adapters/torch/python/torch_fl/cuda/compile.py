"""torch.compile over CUDA: Inductor's own CUDA back end, on CUDA views.

AOTAutograd traces the program on flagos, so gradients, mutations and aliases are flagos' own. Each
graph it hands to Inductor is then renamed to CUDA: code generation (Triton), autotuning and CUDA
graphs are those of torch.compile for CUDA. Around the compiled function, arguments become CUDA
views and results flagos ones; no memory is copied.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch._inductor.compile_fx as inductor
from torch._functorch import config as functorch_config
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from flagos import UnsupportedError
from torch_fl.calls import Kwargs
from torch_fl.compile.programs import is_on_flagos, uses_flagos
from torch_fl.cuda import lent_kernels
from torch_fl.cuda.compiled_graph import OverCuda

_DEVICE = "flagos"

_compile_fx = inductor.compile_fx
_compile_graph = inductor.compile_fx_inner


def register() -> None:
    """Put the renaming between AOTAutograd and Inductor."""
    inductor.compile_fx = compile_fx


@functools.wraps(_compile_fx)
def compile_fx(
    model_: Any,
    example_inputs_: Any,
    inner_compile: Any = _compile_graph,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """`torch._inductor.compile_fx.compile_fx`, for graphs on flagos too."""
    on_flagos = uses_flagos(model_, example_inputs_)
    if on_flagos and torch._inductor.virtualized.V.aot_compilation:
        raise UnsupportedError(
            "AOTInductor makes code for a device that torch's own runtime knows: export the program on "
            "cuda instead, model.to('cuda') and x.to('cuda') copy nothing, and give the package such views"
        )
    if inner_compile is not _compile_graph:  # renamed already, or compiled by somebody else
        return _compile_fx(model_, example_inputs_, inner_compile, *args, **kwargs)
    with _cache(kwargs) if on_flagos else contextlib.nullcontext():
        return _compile_fx(model_, example_inputs_, _compile_renamed, *args, **kwargs)


def _cache(options: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """How AOTAutograd keeps what it compiles.

    Its cache of graphs by their keys does not know of the views around them, so it is off, and Inductor alone caches
    the code of each graph. An artifact of `torch._inductor.standalone_compile`, which alone passes `ignore_shape_env`,
    is such an entry of the cache, and no artifact without it: there the entry has the graph itself, with its views.
    """
    artifact = "ignore_shape_env" in options
    changed = {"bundled_autograd_cache": True} if artifact else {"enable_autograd_cache": False}
    patch: contextlib.AbstractContextManager[Any] = functorch_config.patch(changed)
    return patch


def _cuda(device: torch.device) -> torch.device:
    return torch.device(
        "cuda", torch.cuda.current_device() if device.index is None else device.index
    )


def _compile_renamed(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    renaming = _Renaming()
    renaming.graph(gm)
    renaming.values(list(example_inputs))
    try:
        if not renaming.found:
            return _compile_graph(gm, example_inputs, **kwargs)
        where = renaming.places(example_inputs)
        results = renaming.places([_example(value) for value in _results(gm)])
        static = _static_inputs(gm, kwargs)
        lent = lent_kernels.needed(gm)
        compiled = _compile_graph(gm, example_inputs, **kwargs)
        return OverCuda(compiled, where, static, results, lent)
    finally:
        renaming.undo()


def _static_inputs(gm: torch.fx.GraphModule, kwargs: Kwargs) -> set[int]:
    """Indices of the graph's arguments that live on after a call: weights and buffers.

    For a backward graph Inductor is told so of activations too, which go while it runs. There the weights are those of
    AOTAutograd's `primals_N` that the forward graph was told of.
    """
    if not kwargs.get("is_backward", False):
        return set(kwargs.get("static_input_idxs", ()))
    context = torch._guards.TracingContext.try_get()
    forward = None if context is None else context.fw_metadata
    weights = () if forward is None else forward.static_input_indices
    names = {f"primals_{index + 1}" for index in weights}
    inputs = (node.name for node in gm.graph.nodes if node.op == "placeholder")
    return {index for index, name in enumerate(inputs) if name in names}


def _results(gm: torch.fx.GraphModule) -> Sequence[Any]:
    (output,) = (node for node in gm.graph.nodes if node.op == "output")
    results: Sequence[Any] = pytree.tree_leaves(output.args[0])
    return results


def _example(value: Any) -> Any:
    return value.meta.get("val") if isinstance(value, torch.fx.Node) else value


class _Renaming:
    """Names CUDA wherever a graph names flagos.

    The example tensors of a trace are changed in place, as passes ask which of them share memory, and
    changed back afterwards: AOTAutograd keeps them.
    """

    def __init__(self) -> None:
        self.found = False
        self._fakes: dict[int, tuple[FakeTensor, torch.device]] = {}

    def graph(self, gm: torch.fx.GraphModule) -> None:
        for module in gm.modules():
            if isinstance(module, torch.fx.GraphModule):
                self._nodes(module)
        for name, value in [*gm.named_buffers(), *gm.named_parameters(), *vars(gm).items()]:
            if is_on_flagos(value) and not isinstance(value, FakeTensor) and "." not in name:
                self.found = True
                delattr(gm, name)
                setattr(gm, name, value.detach().to(_cuda(value.device)))

    def _nodes(self, module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            node.args = pytree.tree_map_only(torch.device, self._device, node.args)
            node.kwargs = pytree.tree_map_only(torch.device, self._device, node.kwargs)
            self.values(list(node.meta.values()))
        module.recompile()

    def values(self, values: Any) -> None:
        for leaf in pytree.tree_leaves(values):
            if isinstance(leaf, FakeTensor) and leaf.fake_device.type == _DEVICE:
                self.found = True
                self._fakes[id(leaf)] = (leaf, leaf.fake_device)
                leaf.fake_device = _cuda(leaf.fake_device)

    def _device(self, device: torch.device) -> torch.device:
        if device.type != _DEVICE:
            return device
        self.found = True
        return _cuda(device)

    def places(self, values: Sequence[Any]) -> list[int]:
        """Which of `values` are tensors that were on flagos."""
        return [index for index, value in enumerate(values) if id(value) in self._fakes]

    def undo(self) -> None:
        for fake, device in self._fakes.values():
            fake.fake_device = device

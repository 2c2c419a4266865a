"""AOTInductor where host code computes on device memory: packages of code for the CPU.

There the memory is the host's, so a program of flagos tensors is compiled as the one of CPU
tensors that it is, and the package says which results are the device's. When it is run, arguments on the
device are passed without a copy, after what is queued on the current stream, and results are given to the
device likewise.
"""

from __future__ import annotations

import copy
import functools
import sys
from typing import Any

import torch
from torch.export._tree_utils import reorder_kwargs
from torch.utils import _pytree as pytree

from flagos import UnsupportedError
from torch_fl.native import native

_DEVICE = "flagos"
# Metadata of a package: the device index of each argument and of each result, -1 for tensors on the CPU.
_ARGUMENTS, _RESULTS = "flagos.arguments", "flagos.results"


def register() -> None:
    """Have `torch._inductor` compile and load such programs. Idempotent; does nothing on other devices."""
    if native().compiled_by != "host code":
        return
    inductor = sys.modules.get("torch._inductor")
    if inductor is not None and not hasattr(inductor.aoti_compile_and_package, "__wrapped__"):
        setattr(  # noqa: B010
            inductor, "aoti_compile_and_package", _compiling(inductor.aoti_compile_and_package)
        )
    package = sys.modules.get("torch._inductor.package.package")
    if package is not None and not hasattr(package.AOTICompiledModel.__call__, "__wrapped__"):
        setattr(  # noqa: B010
            package.AOTICompiledModel, "__call__", _calling(package.AOTICompiledModel.__call__)
        )


def _is_ours(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == _DEVICE


def _compiling(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def compile_and_package(exported_program: Any, *arguments: Any, **named: Any) -> Any:
        devices = _devices_of(exported_program)
        if not devices:
            return theirs(exported_program, *arguments, **named)
        if len(devices) > 1:
            raise UnsupportedError(
                f"AOTInductor makes a package for one flagos device, and this program is on {sorted(devices)}"
            )
        configs = dict(named.pop("inductor_configs", None) or {})
        metadata = dict(configs.get("aot_inductor.metadata", {}))
        for key, values in zip((_ARGUMENTS, _RESULTS), _values(exported_program), strict=True):
            tensors = (value for value in values if isinstance(value, torch.Tensor))
            metadata[key] = ",".join(str(x.device.index if _is_ours(x) else -1) for x in tensors)
        configs["aot_inductor.metadata"] = metadata
        return theirs(_as_cpu(exported_program), *arguments, inductor_configs=configs, **named)

    return compile_and_package


def _devices_of(program: Any) -> set[int]:
    """The indices of the flagos devices that hold parameters, constants or arguments of a program."""
    if not isinstance(program, torch.export.ExportedProgram):
        return set()
    held = [program.state_dict, program.constants, program.example_inputs]
    return {x.device.index for x in pytree.tree_leaves(held) if _is_ours(x)}


def _values(program: Any) -> tuple[list[Any], list[Any]]:
    """The inputs and the results of the program, as traced."""
    given, returned = program.graph_signature.user_inputs, program.graph_signature.user_outputs
    traced = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return [traced.get(name) for name in given], [traced.get(name) for name in returned]


def _as_cpu(program: Any) -> Any:
    """A copy of the program over CPU tensors."""
    from torch.export.passes import move_to_device_pass

    module = copy.deepcopy(program.graph_module)
    for mine, theirs in zip(module.graph.nodes, program.graph.nodes, strict=True):
        # A copied graph renames arguments that have the name of a built-in function, such as `input`.
        mine.name, mine.target = theirs.name, theirs.target
    module.recompile()
    apart = program._update(
        module,
        program.graph_signature,
        state_dict=dict(program.state_dict),
        constants=dict(program.constants),
    )
    return move_to_device_pass(apart, "cpu")


def _calling(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        about = self.get_metadata()
        if _RESULTS not in about:
            return theirs(self, *arguments, **named)
        _check(self, arguments, named, about[_ARGUMENTS])
        for index in {
            x.device.index for x in pytree.tree_leaves((arguments, named)) if _is_ours(x)
        }:
            torch.ops.flagos.drain(index)
        arguments, named = pytree.tree_map_only(torch.Tensor, _shared, (arguments, named))
        results, spec = pytree.tree_flatten(theirs(self, *arguments, **named))
        numbers = iter(about[_RESULTS].split(","))
        given = [
            _given(x, int(next(numbers))) if isinstance(x, torch.Tensor) else x for x in results
        ]
        return pytree.tree_unflatten(given, spec)

    return call


def _check(model: Any, arguments: Any, named: Any, devices: str) -> None:
    """Raises ValueError for a tensor on another device than the package was made for."""
    order = pytree.treespec_loads(model.loader.get_call_spec()[0])
    leaves = pytree.tree_leaves((arguments, reorder_kwargs(named, order)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for at, (tensor, index) in enumerate(zip(tensors, devices.split(","), strict=False)):
        wanted = torch.device("cpu") if index == "-1" else torch.device(_DEVICE, int(index))
        if tensor.device != wanted:
            raise ValueError(
                f"tensor {at} of this package's arguments is on {wanted}, got one on {tensor.device}"
            )


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of one on the device."""
    if not _is_ours(tensor):
        return tensor
    whole: torch.Tensor = torch.ops.flagos.native_bytes(tensor.untyped_storage())
    return torch.empty(0, dtype=tensor.dtype).set_(
        whole.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )


def _given(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """A tensor on the device over the memory of a CPU tensor."""
    if index < 0:
        return tensor
    given: torch.Tensor = torch.ops.flagos.adopt_native(tensor, index)
    return given

"""Random operators in compiled programs: the device's generator where torch knows those of its own devices.

A region that the backward pass computes again (activation checkpointing) must draw the same numbers again. There the
compiled program saves the state of the generator, runs the operator, and later runs it from the saved state.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._prims import rng_prims
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)
from torch.utils import _pytree as pytree

from torch_fl import flagos

_DEVICE = "flagos"


def _device_of(args: Any, kwargs: Any) -> torch.device | None:
    """The flagos device whose generator an operator draws from; None for an operator on another device."""
    named = kwargs.get("device")
    if named is not None:
        device = torch.device(named)
        return device if device.type == _DEVICE else None
    for leaf in pytree.arg_tree_leaves(*args, **kwargs):
        if isinstance(leaf, torch.Tensor) and leaf.device.type == _DEVICE:
            return leaf.device
    return None


def _run_and_save(theirs: Callable[..., Any], op: Any, *args: Any, **kwargs: Any) -> Any:
    device = _device_of(args, kwargs)
    if device is None:
        return theirs(op, *args, **kwargs)
    return flagos.get_rng_state(device), op(*args, **kwargs)


def _run_from(theirs: Callable[..., Any], state: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    device = _device_of(args, kwargs)
    if device is None:
        return theirs(state, op, *args, **kwargs)
    current = flagos.get_rng_state(device)
    flagos.set_rng_state(state.cpu(), device)
    try:
        return op(*args, **kwargs)
    finally:
        flagos.set_rng_state(current, device)


def _run_and_save_fake(
    theirs: Callable[..., Any], mode: FakeTensorMode, op: Any, *args: Any, **kwargs: Any
) -> Any:
    device = _device_of(args, kwargs)
    if device is None:
        return theirs(mode, op, *args, **kwargs)
    state = mode.from_tensor(flagos.get_rng_state(device), static_shapes=True)
    with mode:
        return state, op(*args, **kwargs)


def _trace_run_and_save(
    theirs: Callable[..., Any], mode: ProxyTorchDispatchMode, op: Any, *args: Any, **kwargs: Any
) -> Any:
    if _device_of(args, kwargs) is None:
        return theirs(mode, op, *args, **kwargs)
    operator = rng_prims.run_and_save_rng_state
    with disable_proxy_modes_tracing():
        results = operator(op, *args, **kwargs)
    tracer: Any = mode.tracer
    named = pytree.tree_map(tracer.unwrap_proxy, ((op, *args), kwargs))
    proxy = tracer.create_proxy("call_function", operator, *named)
    return track_tensor_tree(results, proxy, constant=None, tracer=tracer)


def _functionalize(theirs: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    modules = theirs(*args, **kwargs)
    for module in modules:
        for node in module.graph.nodes:
            for state in _states_of(node):
                # torch's example is the state of a CPU's or a CUDA generator.
                _exemplify(state, node)
    return modules


def _states_of(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes of the generator's state that the node saves or runs from."""
    if node.target is rng_prims.run_with_rng_state:
        return [node.args[0]]  # type: ignore[list-item]
    if node.target is rng_prims.run_and_save_rng_state:
        return [user for user in node.users if user.args[1] == 0]
    return []


def _exemplify(state: torch.fx.Node, node: torch.fx.Node) -> None:
    values = pytree.tree_map_only(torch.fx.Node, lambda arg: arg.meta.get("val"), node.args)
    device = _device_of(values, node.kwargs)
    if device is not None:
        mode = state.meta["val"].fake_mode
        state.meta["val"] = mode.from_tensor(flagos.get_rng_state(device), static_shapes=True)


def register() -> None:
    """Put the device's generator into what torch does to save states and run from them. Idempotent."""
    partitioners = sys.modules.get("torch._functorch.partitioners")
    if partitioners is not None and not hasattr(partitioners.functionalize_rng_ops, "__wrapped__"):
        theirs = partitioners.functionalize_rng_ops
        wrapped = functools.wraps(theirs)(functools.partial(_functionalize, theirs))
        setattr(partitioners, "functionalize_rng_ops", wrapped)  # noqa: B010
    save, run = rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state
    _around(save, save.py_kernels, DispatchKey.BackendSelect, _run_and_save)
    _around(save, save.python_key_table, FakeTensorMode, _run_and_save_fake)
    _around(save, save.python_key_table, ProxyTorchDispatchMode, _trace_run_and_save)
    _around(run, run.py_kernels, DispatchKey.BackendSelect, _run_from)


def _around(operator: Any, table: Any, key: Any, ours: Callable[..., Any]) -> None:
    theirs = table[key]
    if getattr(theirs, "func", None) is not ours:
        table[key] = functools.partial(ours, theirs)
        operator._dispatch_cache.clear()

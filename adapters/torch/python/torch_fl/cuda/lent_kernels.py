"""Kernels for flagos alone, lent to the CUDA views that a compiled graph has in the place of flagos tensors.

Inductor calls an operator that it does not know on the graph's own tensors. One that a program has registered for
flagos, and for no device besides it, gets a kernel for CUDA by which it sees flagos tensors again: the same memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

_KEY = torch._C.DispatchKey.CUDA
_FLAGOS = torch._C.DispatchKey.PrivateUse1
_as_flagos = torch.ops.flagos.as_flagos.default
_as_native = torch.ops.flagos.as_native.default
_lock = threading.Lock()
_lent: dict[str, torch.library.Library] = {}


def needed(gm: torch.fx.GraphModule) -> list[str]:
    """Operators in a graph, as ``ns::name.overload``, that have a kernel for flagos and none for CUDA."""
    found: dict[str, None] = {}
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                # An operator that writes is an argument of the node that makes a function of it.
                for op in pytree.tree_leaves((node.target, node.args, node.kwargs)):
                    if isinstance(op, OpOverload) and (
                        op.name() in _lent or _knows_flagos_alone(op)
                    ):
                        found[op.name()] = None
    return list(found)


def _knows_flagos_alone(op: OpOverload) -> bool:
    if op.namespace == "aten" or not op.has_kernel_for_dispatch_key(_FLAGOS):
        return False
    # Those that serve every device, of whatever kind, are computed for CUDA, too.
    return not torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), _KEY.name)


def lend(names: Iterable[str]) -> None:
    """Lends the kernels of operators that `needed` found. Idempotent.

    Raises RuntimeError for an operator that this process has not registered.
    """
    with _lock:
        for name in names:
            if name in _lent:
                continue
            namespace, _, rest = name.partition("::")
            short, _, overload = rest.partition(".")
            try:
                packet = getattr(getattr(torch.ops, namespace), short)
                op = getattr(packet, overload or "default")
            except AttributeError:
                raise RuntimeError(
                    f"a compiled graph calls {name}, which nothing has registered: import what defines it first"
                ) from None
            library = torch.library.Library(namespace, "IMPL")
            library.impl(rest, _on_flagos(op), _KEY.name)
            _lent[name] = library


def _on_flagos(op: OpOverload) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = op(*_seen(args, _as_flagos), **_seen(kwargs, _as_flagos))
        return _seen(result, _as_native)

    return call


def _seen(values: Any, view: Callable[[list[torch.Tensor]], list[torch.Tensor]]) -> Any:
    """`values` with views in the place of tensors on a device; `view` leaves those on the CPU as they are."""
    leaves, spec = pytree.tree_flatten(values)
    where = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    for index, tensor in zip(where, view([leaves[index] for index in where]), strict=True):
        leaves[index] = tensor
    return pytree.tree_unflatten(leaves, spec)

"""The implementations that serve ATen operators on the flagos device in this process.

The plan itself belongs to the core (package `flagos`); this module feeds it torch's operators, and
keeps torch's dispatcher in step with it where the plan chooses a Python implementation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import flagos
from flagos import _core, counting, explanation, plan_listeners
from flagos.plan_entry import PlanEntry
from torch_fl import python_kernels
from torch_fl.native import native

_NAMESPACE = "aten::"


def _qualified(op: str) -> str:
    return op if "::" in op else _NAMESPACE + op


_registered: tuple[str, ...] = ()

# Why automatic graphs follow no calls on a route.
_UNFOLLOWED_ROUTES = {
    "foreign": "a kernel of Python serves it, and none is replayed",
    "cpu_fallback": "copies on the CPU serve it",
}


def get_registered_ops() -> list[str]:
    """Names of the operators that run on the device, such as `aten::add.Tensor`, sorted."""
    return list(_registered)


def declare_native_implementations() -> None:
    """Tell the core which operators have a native kernel on the device.

    Called once, right after the extension registered them with torch.
    """
    global _registered
    from torch_fl import _C

    vendor, backend = native().vendor, native().backend

    # The extension lists only its kernels for strided tensors. The core's slots name its kernels for sparse and
    # quantized tensors.
    registered = _C.registered_ops()
    found = {name for name, why_not, _ in registered if why_not is None}
    missing = {name: why_not for name, why_not, _ in registered if why_not is not None}
    composed = _C.composite_ops()
    for namespace in ("aten", "quantized"):
        prefix = f"{namespace}::"
        found.update(set(_core.ops(prefix)) - missing.keys())
        composite = {name for name in composed if name.startswith(prefix)}
        # Declared first, so that the core distinguishes their names from unknown names in routes.
        _core.declare_composite(namespace, [name.removeprefix(prefix) for name in composite])
        names = sorted(
            name.removeprefix(prefix) for name in found - composite if name.startswith(prefix)
        )
        _core.register_impls(
            namespace, names, f"{backend}.native", "vendor", vendor=vendor, backend=backend
        )
    for name, why_not in missing.items():
        namespace, op = name.split("::")
        _core.register_impls(
            namespace,
            [op],
            f"{backend}.native",
            "vendor",
            vendor=vendor,
            backend=backend,
            unavailable_reason=why_not,
        )
    for namespace in ("aten", "quantized"):
        prefix = f"{namespace}::"
        on_cpu_too = [
            name.removeprefix(prefix)
            for name, _, too in registered
            if too and name.startswith(prefix)
        ]
        _core.register_impls(
            namespace, on_cpu_too, "cpu.fallback", "reference", backend="cpu", cpu_fallback=True
        )
    _registered = tuple(sorted(found | missing.keys()))
    plan_listeners.join(TorchListener())
    counting.join(python_kernels)
    explanation.join(_note_on_graphs)


def _note_on_graphs(entry: PlanEntry) -> explanation.Note | None:
    """Whether automatic graphs follow the calls of an operator, and why not; None where there are none, or no calls."""
    if not entry["op"].startswith(("aten::", "quantized::")) or entry["route"] == "blocked":
        return None
    if not torch.ops.flagos.graphs_supported():
        return None  # `flagos doctor` says so once
    if entry["route"] == "foreign" and _is_replayed(entry["op"]):
        follows, detail = True, "that are replayed"
    elif entry["route"] in _UNFOLLOWED_ROUTES:
        follows, detail = False, _UNFOLLOWED_ROUTES[entry["route"]]
    else:
        follows, detail = torch.ops.flagos.graphs_follow(entry["op"])
    text = (
        f"follow its calls {detail}".rstrip() if follows else f"do not follow its calls: {detail}"
    )
    return explanation.Note(
        "automatic_graphs", {"follows": follows, "detail": detail}, f"automatic graphs {text}"
    )


def _is_replayed(op: str) -> bool:
    from torch_fl.python_kernels import replay  # not needed by an import of torch_fl

    known = replay.statistics().get(op)
    return known is not None and known.replayed > 0


def explain(op: str) -> flagos.Explanation:
    """The decision for `op`: the winner, the deciding setting, and why the others lost. Print it."""
    return flagos.explain(_qualified(op))


def plan_summary() -> dict[str, int]:
    """Implementation → number of operators that it serves, the largest share first."""
    shares = Counter(_winner(entry) for entry in flagos.plan()["ops"].values())
    return dict(shares.most_common())


def _winner(entry: Mapping[str, Any]) -> str:
    return entry["winner"] or "blocked"


def counters() -> dict[str, dict[str, int]]:
    """Calls and fallbacks of every operator called so far, by qualified name."""
    return flagos.counters()


def reset_counters() -> None:
    """Set every counter to zero."""
    flagos.reset_counters()


def register_impl(
    op: str,
    fn: Callable[..., Any],
    *,
    impl_id: str,
    kind: str = "flagos",
    backend: str = "flagos_python",
    vendor: str | None = None,
    priority: int = 0,
) -> None:
    """Register the Python function `fn` as an implementation of `op` on the device.

    `fn` has the signature of the operator's overload, and gets and returns flagos tensors. The plan
    decides whether it is used; by default an implementation of kind `flagos` is preferred to the
    vendor's. Inside `fn` the operator itself means the native kernel.

    `fn` declines a call by raising flagos.UnsupportedError or NotImplementedError before it writes
    to any argument: the native kernel then serves the call, and the fallback is counted (in strict
    mode, raised). The same `impl_id` twice for an operator is an error.
    """
    flagos.register(
        _qualified(op),
        fn,
        impl_id=impl_id,
        kind=kind,
        backend=backend,
        vendor=vendor,
        priority=priority,
    )


def unregister_impl(op: str, impl_id: str) -> None:
    """Unregister an implementation that `register_impl` registered."""
    flagos.unregister(_qualified(op), impl_id)


def set_route(op: str, selector: str | Sequence[str]) -> None:
    """Route `op` until `clear_route`. Beats files and environment, not a `route` region."""
    flagos.set_route(_qualified(op), selector)


def clear_route(op: str | None = None) -> None:
    """Undo `set_route` for one operator, or for all operators."""
    flagos.clear_route(None if op is None else _qualified(op))


class TorchListener:
    """Keeps torch's dispatcher in step with the plan: see `flagos.plan_listeners`."""

    def require(self, op: str) -> None:
        """Raise ValueError for an operator of the namespace `aten` that torch does not have."""
        if op.startswith(_NAMESPACE):
            python_kernels.require_operator(op)

    def registered(self, implementation: plan_listeners.Implementation) -> None:
        """Remember an implementation of an ATen operator."""
        if implementation.op.startswith(_NAMESPACE):
            python_kernels.register(
                implementation.op,
                implementation.impl_id,
                implementation.fn,
                implementation.backend,
                implementation.native,
                implementation.only,
            )

    def unregistered(self, op: str, impl_id: str) -> None:
        """Detach an implementation for good."""
        python_kernels.unregister(op, impl_id)

    def published(self) -> None:
        """Attach the Python implementations that the plan chooses, and detach all others."""
        for op in python_kernels.implemented_operators():
            python_kernels.choose(op, _core.explain(op)["winner"])

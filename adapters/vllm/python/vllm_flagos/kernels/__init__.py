"""The kernels that vLLM registers with torch, ``_C::rms_norm`` and others, as operators of the plan.

Implementations are ``vllm_c`` (the kernels of vLLM's own wheel, on CUDA), FlagGems' for some, and a reference. While
``vllm_c`` serves, a call goes from torch's dispatcher to the kernel through the fallback of torch_fl for third-party
operators, without Python; for any other implementation `declare` puts a kernel over the operator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from flagos import Operator, _core, plan_listeners
from vllm_flagos.kernels import wheel
from vllm_flagos.kernels.flaggems import FLAGGEMS
from vllm_flagos.kernels.table import KERNELS, Kernel

_KEY = "PrivateUse1"
_lock = threading.Lock()
_schemas: dict[str, torch.library.Library] = {}
_served: dict[str, _Served] = {}
_listener: _Listener | None = None


class _Served:
    """One operator, with the kernel that is put over it while its implementation is not ``vllm_c``."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.operator = Operator(kernel.qualified)
        self.library: torch.library.Library | None = None
        missing = wheel.missing(kernel.namespace)
        self.operator.offer(
            self._native if missing is None else self._absent,
            impl_id=f"vllm_c.{kernel.name}",
            kind="vendor",
            vendor=_core.vendor_info()["name"],
            backend="vllm_c",
            unavailable=missing,
        )
        if kernel.reference is not None:
            self.operator.offer(
                kernel.reference,
                impl_id=f"reference.{kernel.name}",
                kind="reference",
                backend="reference",
            )
        FLAGGEMS.offer(self.operator, kernel.name)

    def _absent(self, *args: Any) -> Any:
        raise _core.UnsupportedError(wheel.missing(self.kernel.namespace) or "it is there now")

    def _native(self, *args: Any) -> Any:
        """Calls the wheel's kernel where another implementation declined the call."""
        overload = getattr(getattr(torch.ops, self.kernel.namespace), self.kernel.name).default
        native = _core.vendor_info()["torch_device_type"]
        assert native is not None
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, native.upper()))
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        given = [
            a.to(torch.device(native, a.device.index)) if isinstance(a, torch.Tensor) else a
            for a in args
        ]
        return tree_map_only(
            torch.Tensor,
            lambda result: result.to(tensors[0].device),
            overload.redispatch(keys, *given),
        )

    def follow(self) -> None:
        """Puts the Python kernel over the operator, or takes it away, as the plan says now."""
        by_wheel = _core.explain(self.kernel.qualified)["winner"] == f"vllm_c.{self.kernel.name}"
        if by_wheel and self.library is not None:
            self.library._destroy()
            self.library = None
        elif not by_wheel and self.library is None:
            self.library = torch.library.Library(self.kernel.namespace, "IMPL")
            self.library.impl(self.kernel.name, _calls(self.operator), _KEY)


def _calls(operator: Operator) -> Callable[..., Any]:
    return lambda *args, **kwargs: operator(*args, **kwargs)


class _Listener:
    """Keeps torch's dispatcher in step with the plan: see `flagos.plan_listeners`."""

    def require(self, op: str) -> None:
        """Nothing: any name may be registered."""

    def registered(self, implementation: plan_listeners.Implementation) -> None:
        """Offers an implementation that the program registered for one of vLLM's operators."""
        served = _served.get(implementation.op)
        if served is not None:
            served.follow()

    def unregistered(self, op: str, impl_id: str) -> None:
        """Nothing: `published` follows."""

    def published(self) -> None:
        """Follows the plan for every operator."""
        for served in _served.values():
            served.follow()


def describe() -> None:
    """Registers vLLM's operators with the plan alone, for ``flagos ops``. Idempotent."""
    with _lock:
        for kernel in KERNELS:
            if kernel.qualified not in _served:
                _served[kernel.qualified] = _Served(kernel)


def declare() -> None:
    """Registers vLLM's operators with the plan, and with torch, where its wheel has not. Idempotent.

    Raises ImportError if a library of vLLM's wheel is there and does not load.
    """
    global _listener
    describe()
    with _lock:
        if _listener is not None:
            return
        wheel.load()
        for kernel in KERNELS:
            if not hasattr(getattr(torch.ops, kernel.namespace), kernel.name):
                library = _schemas.setdefault(
                    kernel.namespace, torch.library.Library(kernel.namespace, "FRAGMENT")
                )
                library.define(kernel.schema)
        for served in _served.values():
            served.follow()
        _listener = _Listener()
        plan_listeners.join(_listener)

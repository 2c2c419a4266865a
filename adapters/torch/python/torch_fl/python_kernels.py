"""Python functions as kernels of ATen operators.

A chosen function is put into torch's dispatcher over the native kernel, which is kept to serve the
calls the function declines. Like torch.library itself, attaching and detaching must not race with
calls of the same operator from other threads.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flagos import _core

_KEY = "PrivateUse1"

_lock = threading.RLock()
_offers: dict[str, dict[str, _Offer]] = {}
_attached: dict[str, _Attachment] = {}
_calls: Counter[str] = Counter()
_running = threading.local()


@dataclass(frozen=True)
class _Offer:
    fn: Callable[..., Any]
    backend: str


@dataclass(frozen=True)
class _Attachment:
    impl_id: str
    library: torch.library.Library


def require_operator(op: str) -> torch._ops.OpOverload:
    """The overload called `op`. Raises ValueError when torch has none of that name."""
    namespace, name = op.split("::", 1)
    base, _, overload = name.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    except AttributeError as error:
        raise ValueError(f"torch has no operator {op!r}: {error}") from None
    assert isinstance(found, torch._ops.OpOverload)
    return found


def offer(op: str, impl_id: str, fn: Callable[..., Any], backend: str) -> None:
    """Remember `fn`, so that `choose` can attach it."""
    with _lock:
        _offers.setdefault(op, {})[impl_id] = _Offer(fn, backend)


def withdraw(op: str, impl_id: str) -> None:
    """Forget an offer and detach it."""
    with _lock:
        attached = _attached.get(op)
        if attached is not None and attached.impl_id == impl_id:
            choose(op, None)
        _offers.get(op, {}).pop(impl_id, None)


def offered_operators() -> list[str]:
    """Operators that have at least one offer."""
    with _lock:
        return [op for op, offers in _offers.items() if offers]


def choose(op: str, impl_id: str | None) -> None:
    """Make the offer `impl_id` serve `op`; the native kernel when it is not one of the offers."""
    with _lock:
        chosen = _offers.get(op, {}).get(impl_id) if impl_id is not None else None
        attached = _attached.get(op)
        if attached is not None:
            if chosen is not None and attached.impl_id == impl_id:
                return
            attached.library._destroy()
            del _attached[op]
        if chosen is not None and impl_id is not None:
            _attached[op] = _Attachment(impl_id, _attach(op, chosen))


def calls() -> dict[str, int]:
    """Calls that Python kernels served, by operator."""
    with _lock:
        return dict(_calls)


def reset_calls() -> None:
    """Set the counts to zero."""
    with _lock:
        _calls.clear()


def _attach(op: str, chosen: _Offer) -> torch.library.Library:
    overload = require_operator(op)
    native = torch.library.get_kernel(overload, _KEY)
    written = [
        (position, argument.name)
        for position, argument in enumerate(overload._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    namespace, name = op.split("::", 1)

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        running: set[str] = _running.__dict__.setdefault("operators", set())
        if op in running:  # called by its own implementation
            return native.call_boxed(keys, *args, **kwargs)
        targets = [
            args[position] if position < len(args) else kwargs.get(argument)
            for position, argument in written
        ]
        before = [_versions(target) for target in targets]
        running.add(op)
        try:
            result = chosen.fn(*args, **kwargs)
        except NotImplementedError as refusal:  # flagos.UnsupportedError is one too
            if [_versions(target) for target in targets] != before:
                raise RuntimeError(
                    f"the implementation of {op} declined the call after it had written to an "
                    "argument, so no other implementation can take over; it must decline first"
                ) from refusal
            declined = str(refusal)
        else:
            with _lock:
                _calls[op] += 1
            if _logs_dispatch():
                sys.stderr.write(f"[flagos dispatch] {name} -> {chosen.backend}\n")
            return result
        finally:
            running.discard(op)
        _core.record_fallback(op, declined or "declined by the implementation")
        return native.call_boxed(keys, *args, **kwargs)

    library = torch.library.Library(namespace, "IMPL")
    library.impl(name, kernel, _KEY, with_keyset=True, allow_override=True)
    return library


def _versions(target: Any) -> Any:
    if isinstance(target, torch.Tensor):
        return target._version if not target.is_inference() else None
    if isinstance(target, (list, tuple)):
        return [_versions(item) for item in target]
    return None


def _logs_dispatch() -> bool:
    return bool(_core.log_dispatch())

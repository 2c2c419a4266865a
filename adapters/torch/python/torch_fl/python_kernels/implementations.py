"""Python functions that may serve operators, and the one that serves each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from flagos import UnsupportedError
from torch_fl.native import native as serving_device
from torch_fl.python_kernels.attachment import (
    Implementation,
    Packed,
    attach,
    attach_native,
    detach,
    require_operator,
)

_lock = threading.RLock()
_implementations: dict[str, dict[str, Implementation]] = {}
_attached: dict[str, _Attachment] = {}
_never_recorded: set[str] = set()
_packed: dict[tuple[str, str], Packed] = {}
_faster: dict[tuple[str, str], tuple[int, ...]] = {}
Observer = Callable[[str, Implementation | None], Implementation | None]
_observer: Observer | None = None


class _Attachment(NamedTuple):
    impl_id: str
    chosen: Implementation


def register(
    op: str,
    impl_id: str,
    fn: Callable[..., Any],
    backend: str,
    native: bool = False,
    only: Iterable[str] = (),
) -> None:
    """Remember `fn`, so that `choose` can attach it.

    Calls for which a condition of `only` does not hold (`flaggems.envelope.CONDITIONS`) go to the native kernel and
    are counted as fallbacks, without entering Python. Raises ValueError for conditions on an `fn` that is not `native`,
    and flagos.UnsupportedError for a `native` one where the device has no other type in torch.
    """
    if only and not native:
        raise ValueError(f"{impl_id} of {op} has conditions, which only native implementations do")
    if native and serving_device().device_type is None:
        raise UnsupportedError(
            f"{impl_id} of {op} takes tensors of the native device, and the devices of vendor "
            f"{serving_device().vendor!r} have no type in torch but flagos: write it for flagos tensors and "
            "register it without native=True"
        )
    with _lock:
        _implementations.setdefault(op, {})[impl_id] = Implementation(
            fn, backend, native, tuple(only)
        )


def limit(op: str, impl_id: str, only: Iterable[str]) -> None:
    """Give a native implementation other conditions, which apply from the next call on.

    Raises ValueError without such an implementation.
    """
    with _lock:
        found = _implementations.get(op, {})
        if impl_id not in found or not found[impl_id].native:
            raise ValueError(f"{op} has no native implementation {impl_id!r}")
        found[impl_id] = found[impl_id]._replace(only=tuple(only))
        _attach_anew(op)


def pack(op: str, impl_id: str, packed: Packed) -> None:
    """Have the calls that the pack in use has of a native implementation replayed, once it is attached anew."""
    with _lock:
        _packed[op, impl_id] = packed


def only_faster(op: str, impl_id: str, classes: Iterable[int] | None) -> None:
    """Have a native implementation serve only calls of these classes (`call_class`); of all, where they are None.

    Of these it serves the calls whose signature has come often, and is replayed. The native kernel serves all others,
    which is no fallback.
    """
    with _lock:
        before = _faster.pop((op, impl_id), None)
        if classes is not None:
            _faster[op, impl_id] = tuple(classes)
        if before != _faster.get((op, impl_id)):
            _attach_anew(op)


def unregister(op: str, impl_id: str) -> None:
    """Forget an implementation and detach it."""
    with _lock:
        attached = _attached.get(op)
        if attached is not None and attached.impl_id == impl_id:
            choose(op, None)
        _implementations.get(op, {}).pop(impl_id, None)


def observe(observer: Observer) -> None:
    """Let `observer(op, chosen)` decide what is attached in place of `chosen`, which is None for the native kernel.

    It is asked whenever the plan chooses anew; within what it returns, the operator itself means the native kernel.
    One process has one observer: it is meant for tools, before anything is attached.
    """
    global _observer
    with _lock:
        _observer = observer


def implemented_operators() -> list[str]:
    """Operators that have at least one implementation."""
    with _lock:
        return [op for op, found in _implementations.items() if found]


def choose(op: str, impl_id: str | None) -> None:
    """Make the implementation `impl_id` serve `op`, or the native kernel if it is None or not registered."""
    with _lock:
        chosen = _implementations.get(op, {}).get(impl_id) if impl_id is not None else None
        if _observer is not None:
            chosen = _observer(op, chosen)
            impl_id = impl_id if chosen is None else impl_id or chosen.backend
        attached = _attached.get(op)
        if chosen is None or impl_id is None:
            if attached is not None:
                detach(op)
                del _attached[op]
        elif attached is None or attached.impl_id != impl_id:
            _attach(op, impl_id, chosen)


def _attach(op: str, impl_id: str, chosen: Implementation) -> None:
    if chosen.native:
        key = op, impl_id
        attach_native(op, chosen, _is_recorded(op), _packed.get(key), _faster.get(key))
    else:
        attach(op, chosen)
    _attached[op] = _Attachment(impl_id, chosen)


def served_natively() -> list[str]:
    """Operators that an implementation for native tensors serves now."""
    with _lock:
        return [op for op, attached in _attached.items() if attached.chosen.native]


def refuse_recordings(op: str) -> None:
    """Never record calls of `op`."""
    require_operator(op)
    with _lock:
        _never_recorded.add(op)
        _attach_anew(op)


def _is_recorded(op: str) -> bool:
    from torch_fl.python_kernels import recording  # imported late, because it imports the launcher

    return recording.enabled() and op not in _never_recorded


def _attach_anew(op: str) -> None:
    """Attach again the implementation that serves `op`, without its recordings."""
    attached = _attached.pop(op, None)  # so that `choose` replaces it
    if attached is not None:
        choose(op, attached.impl_id)

"""Registries of implementations, backed by the core.

The registry of the default manager *is* the core's: ``flagos explain te::rmsnorm_fwd`` shows its
implementations, and a lock file covers them. Every other registry has implementations of its own and
follows the same policy.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from flagos._core import InvalidArgumentError
from flagos._core import operator as _operator
from te_fl.core.native import native as _native
from te_fl.core.types import OpImpl, why_unavailable


@dataclass
class OpRegistrySnapshot:
    """A copy of the registrations at one moment: operator → its implementations."""

    impls_by_op: dict[str, list[OpImpl]]


class OpRegistry:
    """Implementations by operator and id. Safe to use from several threads."""

    def __init__(self, *, _of_process: bool = False) -> None:
        self._lock = threading.RLock()
        self._impls_by_op: dict[str, dict[str, OpImpl]] = {}
        self._unavailable: dict[tuple[str, str], str | None] = {}
        self._store = _native.Store(_of_process)
        _registries.add(self)

    def register_impl(self, impl: OpImpl) -> None:
        """Registers ``impl``; it can be chosen from the next call on.

        Raises ValueError (:class:`flagos.InvalidArgumentError`) for an id that the operator has already
        and for an invalid name, and TypeError when ``impl.fn`` is not callable.
        """
        if not callable(impl.fn):
            raise TypeError(
                f"fn of '{impl.impl_id}' for op='{impl.op_name}' is not callable: {impl.fn!r}"
            )
        with self._lock:
            by_id = self._impls_by_op.setdefault(impl.op_name, {})
            if impl.impl_id in by_id:
                raise InvalidArgumentError(
                    f"Duplicate impl_id '{impl.impl_id}' for op='{impl.op_name}'. "
                    f"Existing: {by_id[impl.impl_id]}, New: {impl}"
                )
            self._store.register(
                impl.op_name, impl.impl_id, str(impl.kind), impl.fn, impl.vendor, impl.priority
            )
            by_id[impl.impl_id] = impl
        _operator.advance()

    def register_many(self, impls: Sequence[OpImpl]) -> None:
        """Registers every one of ``impls``, or none when one of them is refused."""
        with self.undone_on_error():
            for impl in impls:
                self.register_impl(impl)

    def unregister(self, op_name: str, impl_id: str) -> None:
        """Unregisters one implementation. Raises ValueError for an unknown id."""
        with self._lock:
            self._store.unregister(op_name, impl_id)
            self._impls_by_op.get(op_name, {}).pop(impl_id, None)
            if not self._impls_by_op.get(op_name):
                self._impls_by_op.pop(op_name, None)
            self._unavailable.pop((op_name, impl_id), None)
        _operator.advance()

    def snapshot(self) -> OpRegistrySnapshot:
        """A copy of the current registrations."""
        with self._lock:
            return OpRegistrySnapshot(
                {op: list(by_id.values()) for op, by_id in self._impls_by_op.items()}
            )

    def get_implementations(self, op_name: str) -> list[OpImpl]:
        """The implementations of an operator, in the order of registration."""
        with self._lock:
            return list(self._impls_by_op.get(op_name, {}).values())

    def get_implementation(self, op_name: str, impl_id: str) -> OpImpl | None:
        """The implementation of that id, or ``None``."""
        with self._lock:
            return self._impls_by_op.get(op_name, {}).get(impl_id)

    def list_operators(self) -> list[str]:
        """The operators that have an implementation, in the order of registration."""
        with self._lock:
            return [op for op, by_id in self._impls_by_op.items() if by_id]

    def clear(self) -> None:
        """Unregisters every implementation."""
        with self._lock:
            for op, by_id in list(self._impls_by_op.items()):
                for impl_id in list(by_id):
                    self._store.unregister(op, impl_id)
            self._impls_by_op.clear()
            self._unavailable.clear()
        _operator.advance()

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """A region whose registrations are undone when an exception leaves it."""
        before = {(i.op_name, i.impl_id) for i in self._all()}
        try:
            yield
        except BaseException:
            for impl in self._all():
                if (impl.op_name, impl.impl_id) not in before:
                    self.unregister(impl.op_name, impl.impl_id)
            raise

    def _all(self) -> list[OpImpl]:
        return [impl for impls in self.snapshot().impls_by_op.values() for impl in impls]

    def probe(self, op_name: str) -> None:
        """Asks each implementation of an operator whether it can run, and tells the core the answers."""
        changed = False
        for impl in self.get_implementations(op_name):
            reason = why_unavailable(impl)
            key = (op_name, impl.impl_id)
            if self._unavailable.get(key) != reason:
                self._unavailable[key] = reason
                self._store.set_availability(op_name, impl.impl_id, reason)
                changed = True
        if changed:
            _operator.advance()

    def _leave_process(self) -> None:
        """Moves the implementations from the core's plan to a store of this registry."""
        with self._lock:
            impls = self._all()
            self.clear()
            self._store = _native.Store(False)
            self.register_many(impls)


_registries: weakref.WeakSet[OpRegistry] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # A thread that the child does not have may have held a lock. The dicts behind it are consistent
    # between any two steps of the interpreter.
    for registry in _registries:
        registry._lock = threading.RLock()


os.register_at_fork(
    before=_native.hold,
    after_in_parent=partial(_native.release, False),
    after_in_child=partial(_native.release, True),
)
os.register_at_fork(after_in_child=_after_fork_in_child)

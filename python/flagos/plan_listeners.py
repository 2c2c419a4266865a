"""Listeners of the plan: adapters that keep a framework's dispatcher in step with it.

An adapter joins once. It is notified of every Python implementation, also those registered before it
joined, and after every change made through this package.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Implementation(NamedTuple):
    """A Python implementation of an operator."""

    op: str
    impl_id: str
    fn: Callable[..., Any]
    backend: str
    native: bool = False  # fn takes tensors of the native device
    # Names of the adapter's conditions on calls. The adapter serves other calls itself.
    only: tuple[str, ...] = ()


class PlanListener(Protocol):
    """The interface of a listener. Its methods run on the thread that made the change."""

    def require(self, op: str) -> None:
        """An implementation of ``op`` is about to be registered: raise when there is no such operator."""

    def registered(self, implementation: Implementation) -> None:
        """An implementation was registered."""

    def unregistered(self, op: str, impl_id: str) -> None:
        """An implementation was unregistered."""

    def published(self) -> None:
        """The plan may have changed."""


_lock = threading.RLock()
_listeners: list[PlanListener] = []
_implementations: dict[tuple[str, str], Implementation] = {}


def join(listener: PlanListener) -> None:
    """Adds ``listener`` and notifies it of the implementations registered so far."""
    with _lock:
        _listeners.append(listener)
        for implementation in _implementations.values():
            listener.registered(implementation)


def require(op: str) -> None:
    """Calls ``require`` of all listeners, which raise if ``op`` does not exist."""
    with _lock:
        for listener in _listeners:
            listener.require(op)


def registered(implementation: Implementation) -> None:
    """Notifies all listeners of a new implementation."""
    with _lock:
        _implementations[implementation.op, implementation.impl_id] = implementation
        for listener in _listeners:
            listener.registered(implementation)


def unregistered(op: str, impl_id: str) -> None:
    """Notifies all listeners that an implementation was unregistered."""
    with _lock:
        _implementations.pop((op, impl_id), None)
        for listener in _listeners:
            listener.unregistered(op, impl_id)


def published() -> None:
    """Notifies all listeners that the plan may have changed."""
    with _lock:
        for listener in _listeners:
            listener.published()

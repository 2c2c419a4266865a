"""Python functions as implementations of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flagos import _core, plan_listeners
from flagos.logs import connect

connect()

F = TypeVar("F", bound=Callable[..., Any])


def register(
    op: str,
    fn: Callable[..., Any],
    *,
    impl_id: str,
    kind: str = "flagos",
    vendor: str | None = None,
    backend: str | None = None,
    priority: int = 0,
    on_request: str | None = None,
    native: bool = False,
) -> int:
    """Registers ``fn`` as an implementation of ``op`` and returns its token.

    The plan may choose it as soon as it is registered; ``kind`` (``flagos``, ``vendor`` or
    ``reference``), ``vendor`` and ``priority`` decide when. The same ``impl_id`` twice for an
    operator is an error. :func:`unregister` undoes it.

    ``on_request`` is a reason why the default order skips it: then only a route of the operator's own
    chooses it. With ``native``, ``fn`` takes tensors of the native device, the device type that a framework
    computes with beneath flagos; they share the memory of the flagos tensors. Raises
    :class:`flagos.UnsupportedError` for it where there is no such type. What raises registers nothing.
    """
    plan_listeners.require(op)
    token = _core.register_impl(
        op,
        impl_id,
        kind,
        fn,
        vendor=vendor,
        backend=backend,
        priority=priority,
        on_request=on_request,
    )
    made = plan_listeners.Implementation(op, impl_id, fn, backend or impl_id, native)
    try:
        plan_listeners.registered(made)
        plan_listeners.published()
    except BaseException:
        unregister(op, impl_id)
        raise
    return token


def unregister(op: str, impl_id: str) -> None:
    """Unregisters an implementation of ``op``."""
    _core.unregister(op, impl_id)
    plan_listeners.unregistered(op, impl_id)
    plan_listeners.published()


def implementation(op: str, **options: Any) -> Callable[[F], F]:
    """Decorator form of :func:`register`; ``impl_id`` defaults to ``user.<function name>``.

    >>> @flagos.implementation("aten::silu", priority=10)
    ... def fast_silu(x): ...
    """

    def decorate(fn: F) -> F:
        impl_id = options.pop("impl_id", f"user.{fn.__name__}")
        register(op, fn, impl_id=impl_id, **options)
        return fn

    return decorate


def foreign(token: int) -> Callable[..., Any]:
    """The function behind a token found in an operator's slot."""
    return _core.foreign(token)

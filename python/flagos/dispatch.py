"""Operators that are called from Python, such as those of LightX2V.

torch's operators reach the plan through torch's dispatcher. An operator of another framework has no
dispatcher of its own: it is an :class:`Operator`, and calling it calls what the plan chose.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flagos import _core, plan_listeners

_lock = threading.RLock()
_operators: dict[str, Operator] = {}


@dataclass(frozen=True)
class _Implementation:
    impl_id: str
    backend: str
    fn: Callable[..., Any]


class Operator:
    """An operator whose implementations are Python functions of one signature.

        >>> scale = Operator("demo::scale")
        >>> scale.offer(lambda x: 2 * x, impl_id="demo.python", kind="reference")
        >>> scale(21)
        42

    There is one per name. The plan is asked once, and again after it changed; a call costs one
    comparison more than the function.

    An implementation declines a call by raising :class:`flagos.UnsupportedError` before it has
    written to anything: the next usable one serves the call, which is counted as a fallback, and an
    error in strict mode.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._offers: dict[str, _Implementation] = {}
        self._chosen: _Implementation | None = None
        self._calls: dict[str, int] = {}
        with _lock:
            if name in _operators:
                raise ValueError(f"there is an operator {name!r} already")
            if not _operators:
                plan_listeners.join(_Listener())
            _operators[name] = self

    def offer(
        self,
        fn: Callable[..., Any],
        *,
        impl_id: str,
        kind: str,
        vendor: str | None = None,
        backend: str | None = None,
        priority: int = 0,
        unavailable: str | None = None,
        on_request: str | None = None,
    ) -> None:
        """Registers ``fn``.

        ``unavailable`` is a reason why it can never be chosen, ``on_request`` one why only a route of
        the operator's own chooses it. Both are explained.
        """
        _core.register_impl(
            self.name,
            impl_id,
            kind,
            fn,
            vendor=vendor,
            backend=backend,
            priority=priority,
            unavailable_reason=unavailable,
            on_request=on_request,
        )
        self._offers[impl_id] = _Implementation(impl_id, backend or vendor or kind, fn)
        plan_listeners.published()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls what the plan chose. Raises :class:`flagos.UnsupportedError` when that is nothing."""
        chosen = self._chosen or self._choose()
        try:
            result = chosen.fn(*args, **kwargs)
        except _core.UnsupportedError as refusal:
            return self._take_over(chosen, refusal, args, kwargs)
        self._count(chosen)
        return result

    @property
    def winner(self) -> str:
        """The implementation that calls go to now."""
        return (self._chosen or self._choose()).impl_id

    @property
    def calls(self) -> dict[str, int]:
        """How many calls each implementation served since the counters were reset."""
        with _lock:
            return dict(self._calls)

    def reset(self) -> None:
        """Sets the counts to zero."""
        with _lock:
            self._calls.clear()

    def _choose(self) -> _Implementation:
        while True:
            asked = _plans.count
            winner = _core.explain(self.name)["winner"]
            if winner is None:
                raise _core.UnsupportedError(
                    f"no implementation of {self.name} is usable:\n{_core.explain_text(self.name)}"
                )
            chosen = self._offers[winner]
            self._chosen = chosen
            if _plans.count == asked:  # otherwise another thread changed the plan meanwhile
                return chosen

    def _take_over(
        self, declined: _Implementation, refusal: Exception, args: Any, kwargs: Any
    ) -> Any:
        reasons = [f"{declined.impl_id} declined: {refusal}"]
        for successor in self._successors(declined):
            _core.record_fallback(self.name, f"{reasons[-1]}; {successor.impl_id} serves the call")
            try:
                result = successor.fn(*args, **kwargs)
            except _core.UnsupportedError as again:
                reasons.append(f"{successor.impl_id} declined: {again}")
                continue
            self._count(successor)
            return result
        raise _core.UnsupportedError(
            f"no implementation of {self.name} takes this call: {'; '.join(reasons)}"
        ) from refusal

    def _successors(self, declined: _Implementation) -> list[_Implementation]:
        """What could have been chosen instead, in the order vendor, reference, flagos."""
        kinds = ("vendor", "reference", "flagos")
        usable = [
            candidate
            for candidate in _core.explain(self.name)["candidates"]
            if candidate["impl_id"] != declined.impl_id and _could_be_chosen(candidate["reason"])
        ]
        usable.sort(key=lambda candidate: (kinds.index(candidate["kind"]), -candidate["priority"]))
        return [self._offers[candidate["impl_id"]] for candidate in usable]

    def _count(self, implementation: _Implementation) -> None:
        with _lock:
            served = self._calls.get(implementation.impl_id, 0)
            self._calls[implementation.impl_id] = served + 1
        if _core.log_dispatch():
            sys.stderr.write(f"[flagos dispatch] {self.name} -> {implementation.backend}\n")


class _Plans:
    """How many plans were published."""

    count = 0


_plans = _Plans()

_LOST_TO_A_BETTER_ONE = ("not named by", "a later alternative", "lower priority")


def _could_be_chosen(reason: str | None) -> bool:
    """Whether a candidate that lost for `reason` was usable (`None`: it won)."""
    return reason is None or reason.startswith(_LOST_TO_A_BETTER_ONE)


class _Listener:
    """Has every operator ask the plan again after it changed: see `flagos.plan_listeners`."""

    def require(self, op: str) -> None:
        """Any name may be registered."""

    def offered(self, offer: plan_listeners.Offer) -> None:
        """Takes an implementation that `flagos.register` added for one of the operators."""
        operator = _operators.get(offer.op)
        if operator is not None:
            operator._offers[offer.impl_id] = _Implementation(
                offer.impl_id, offer.backend, offer.fn
            )

    def withdrawn(self, op: str, impl_id: str) -> None:
        """Forgets an implementation."""
        operator = _operators.get(op)
        if operator is not None:
            operator._offers.pop(impl_id, None)
            operator._chosen = None

    def published(self) -> None:
        """The plan may have changed."""
        _plans.count += 1  # by one thread at a time
        for operator in list(_operators.values()):
            operator._chosen = None


def calls() -> dict[str, int]:
    """Calls served from Python, by operator, of those that were called."""
    with _lock:
        totals = {name: sum(op._calls.values()) for name, op in _operators.items()}
    return {name: total for name, total in totals.items() if total}


def reset_calls() -> None:
    """Sets the counts of every operator to zero."""
    with _lock:
        for operator in _operators.values():
            operator._calls.clear()

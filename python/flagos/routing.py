"""Routes set by the program: the implementation for each operator.

Routes are process-wide, like the plan they change: a region routed by one thread is routed for all
threads. Regions of several threads may overlap and end in any order; the one entered last wins.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ContextDecorator, contextmanager, suppress
from types import TracebackType

from flagos import _core, plan_listeners
from flagos.logs import connect

connect()


def _selector(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else "|".join(value)


class route(ContextDecorator):
    """Routes operators for a region of the program, or for every call of a decorated function.

    ``routes`` maps operators (``"aten::mm"``, ``"add.Tensor"``, ``"add.*"``) to a selector
    (``"cpu"``, ``"vendor:acme"``, ``"impl:flaggems.python"``) or to several in order of preference.
    An operator none of whose selectors is usable is blocked, and calling it raises the reason.
    Can be entered repeatedly and from several threads.

        >>> with flagos.route({"aten::mm": "cpu", "softmax.*": ["flaggems", "cpu"]}):
        ...     y = model(x)
    """

    def __init__(self, routes: Mapping[str, str | Sequence[str]]) -> None:
        self._routes = {op: _selector(value) for op, value in routes.items()}
        # One stack per thread: a decorated function may run in several at once.
        self._entered = threading.local()

    def __enter__(self) -> route:
        token = _core.push_context(self._routes)
        stack: list[int] = getattr(self._entered, "tokens", [])
        stack.append(token)
        self._entered.tokens = stack
        plan_listeners.published()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A child forked inside the region has no routes to remove.
        with suppress(_core.ForkedError):
            _core.pop_context(self._entered.tokens.pop())
            plan_listeners.published()


def set_route(op: str, selector: str | Sequence[str]) -> None:
    """Routes ``op`` until :func:`clear_route`. Beats files and environment, not a ``route`` region."""
    _core.set_route(op, _selector(selector))
    plan_listeners.published()


def clear_route(op: str | None = None) -> None:
    """Undoes :func:`set_route` for one operator, or for all operators."""
    _core.clear_route(op)
    plan_listeners.published()


def set_strict(enabled: bool | None) -> None:
    """Sets whether a CPU fallback or an unusable route is an error. ``None``: as configured."""
    _core.set_strict(enabled)
    plan_listeners.published()


@contextmanager
def strict(enabled: bool = True) -> Iterator[None]:
    """Strict mode for a region of the program (process-wide, like every route).

    >>> with flagos.strict(): ...   # any CPU fallback raises
    """
    previous = _core.strict_override()
    set_strict(enabled)
    try:
        yield
    finally:
        set_strict(previous)

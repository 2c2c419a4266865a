"""Detection of writes into the arguments of a function that failed.

torch counts the writes into a tensor; a count that differs after the failure means a write. Only operators
unknown to :mod:`te_fl.core.signatures` are watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

_MARK = "__te_fl_wrote__"


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``function``: its exceptions are marked with whether it had written (see :func:`wrote`)."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = [(tensor, _version(tensor)) for tensor in _tensors((*args, *kwargs.values()))]
        try:
            return function(*args, **kwargs)
        except Exception as error:
            changed = any(version is None or _version(t) != version for t, version in before)
            setattr(error, _MARK, changed)
            raise

    return call


def wrote(error: Exception) -> bool:
    """Whether the function that raised ``error`` had written. True when the function was not watched."""
    return bool(getattr(error, _MARK, True))


def _version(tensor: Any) -> int | None:
    """The number of writes into the tensor. None for a tensor of inference mode, which has no count."""
    return None if tensor.is_inference() else int(tensor._version)


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        # Recognises a tensor without importing torch. The class is inspected, because reading `_version`
        # raises for some tensors.
        if hasattr(type(value), "_version") and hasattr(type(value), "is_inference"):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())

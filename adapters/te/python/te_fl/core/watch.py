"""Whether a function that failed had written into its arguments.

For operators nobody declared: torch counts the writes into a tensor, so the counts before the call and
after the failure tell. Operators of TransformerEngine are not watched; for those it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

_MARK = "__te_fl_wrote__"


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, marking an exception it raises with whether it had written (see :func:`wrote`)."""

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
    """Whether the function that raised had written; assumed where it was not watched."""
    return bool(getattr(error, _MARK, True))


def _version(tensor: Any) -> int | None:
    """How often the tensor was written to; None for one that was made in inference mode, which does not count."""
    return None if tensor.is_inference() else int(tensor._version)


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        # A tensor, without importing torch. Its class is asked: not every tensor has a version.
        if hasattr(type(value), "_version") and hasattr(type(value), "is_inference"):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())

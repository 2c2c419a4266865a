"""Names of `torch.flagos` that rooms above it provide, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable

_makers: dict[str, Callable[[], object]] = {}


def provide(name: str, make: Callable[[], object]) -> None:
    """Have `torch.flagos.<name>` be what `make` returns."""
    _makers[name] = make


def find(name: str) -> Callable[[], object] | None:
    """What makes the object of that name; None where nobody provides it."""
    return _makers.get(name)

"""This adapter's part of flagos' native module (``adapters/te/src``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Layer(Protocol):
    """A policy, ready to stand in for what the variables say."""


class Store(Protocol):
    """Implementations, of the process or of one registry."""

    def register(
        self,
        op: str,
        impl_id: str,
        kind: str,
        fn: Callable[..., Any],
        vendor: str | None = None,
        priority: int = 0,
    ) -> None: ...

    def unregister(self, op: str, impl_id: str) -> None: ...

    def set_availability(self, op: str, impl_id: str, reason: str | None = None) -> None:
        """``reason``: why it cannot be used."""

    def rank(
        self, op: str, over: Layer | None = None
    ) -> tuple[list[tuple[str, int | None]], bool, str | None]:
        """Usable ids with their tokens in order; whether a failure is final; why nothing is usable."""

    def check(self) -> None:
        """Raises for a name in files or variables that nothing has."""


class Native(Protocol):
    """The submodule."""

    def Store(self, process: bool) -> Store:
        """Implementations: those of the process, or new ones."""

    def layer(
        self,
        source: str,
        prefer: str | None = None,
        strict: bool | None = None,
        per_op: list[tuple[str, list[str]]] | None = None,
        deny_vendors: list[str] | None = None,
        allow_vendors: list[str] | None = None,
    ) -> Layer:
        """A layer that says what is given; what is None is left to weaker layers."""

    def set_layer(self, layer: Layer | None = None) -> None:
        """Puts a layer in the place of what the variables say."""

    def variables_now(self) -> dict[str, Any]:
        """What the variables say now, with the layer they make."""

    def token(self, text: str) -> str:
        """An alternative of an order in its one spelling; ConfigError for what is none."""

    def vendor(self, name: str) -> str:
        """The name under which the core knows a vendor."""

    def hold(self) -> None:
        """Right before a fork."""

    def release(self, child: bool) -> None:
        """Right after one."""


native: Native = import_module("flagos._core.te")

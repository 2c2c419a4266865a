"""This adapter's part of flagos' native module (``adapters/te/src``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Layer(Protocol):
    """A policy in the core's form, which can replace the policy of the variables."""


class Store(Protocol):
    """The implementations of the process, or of one registry."""

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
        """Marks an implementation unusable for ``reason``, or usable with ``None``."""

    def rank(
        self, op: str, over: Layer | None = None
    ) -> tuple[list[tuple[str, int | None]], bool, str | None]:
        """(usable ids with their tokens, best first; whether a failure is final; why none is usable)."""

    def check(self) -> None:
        """Raises ConfigError with the place of a name in files or variables that does not exist."""


class Native(Protocol):
    """The interface of ``flagos._core.te``."""

    def Store(self, process: bool) -> Store:
        """The implementations of the process, or an empty store."""

    def layer(
        self,
        source: str,
        prefer: str | None = None,
        strict: bool | None = None,
        per_op: list[tuple[str, list[str]]] | None = None,
        deny_vendors: list[str] | None = None,
        allow_vendors: list[str] | None = None,
    ) -> Layer:
        """A layer of the given parts. Weaker layers decide the parts that are None."""

    def set_layer(self, layer: Layer | None = None) -> None:
        """Puts ``layer`` in the place of the layer of the variables, for the whole process."""

    def variables_now(self) -> dict[str, Any]:
        """The values of the variables now, and the layer made of them."""

    def token(self, text: str) -> str:
        """The canonical spelling of an alternative of an order. Raises ConfigError for an invalid one."""

    def vendor(self, name: str) -> str:
        """The core's name of a vendor."""

    def hold(self) -> None:
        """Called right before a fork: no thread uses the implementations of the process until ``release``."""

    def release(self, child: bool) -> None:
        """Called right after a fork, in the parent and in the child."""


native: Native = import_module("flagos._core.te")

"""Implementations of operators, as TransformerEngine-FL's interface describes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flagos.messages import described
from te_fl.core.native import native as _native


class BackendImplKind(str, Enum):
    """The kind of an implementation, which decides its place in the default order."""

    DEFAULT = "flagos"
    REFERENCE = "reference"
    VENDOR = "vendor"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class OpImpl:
    """One implementation of one operator.

    ``impl_id`` is unique among the implementations of the operator. ``fn`` is called with the
    arguments of the operator. A callable attribute ``_is_available`` of ``fn`` tells whether it can run
    here; an exception means no. ``supported_dtypes`` and ``min_arch`` are information for readers only.
    """

    op_name: str
    impl_id: str
    kind: BackendImplKind
    fn: Callable[..., Any]
    vendor: str | None = None
    priority: int = 0
    supported_dtypes: set[str] | None = None
    min_arch: str | None = None

    def __post_init__(self) -> None:
        if self.kind == BackendImplKind.VENDOR and not self.vendor:
            raise ValueError(f"OpImpl with kind=VENDOR must specify vendor name: {self.impl_id}")

    def is_available(self) -> bool:
        """Whether ``fn._is_available()`` says that it can run in this process."""
        return why_unavailable(self) is None


def why_unavailable(impl: OpImpl) -> str | None:
    """The reason why ``impl.fn._is_available()`` fails; ``None`` when the implementation can run."""
    probe = getattr(impl.fn, "_is_available", None)
    if not callable(probe):
        return None
    try:
        return None if probe() else "its _is_available() says no"
    # A probe may raise any exception, which becomes the reason.
    except Exception as error:
        return f"its _is_available() raised {described(error)}"


def match_token(impl: OpImpl, token: str) -> bool:
    """Whether the alternative ``token`` of an order matches ``impl``.

    Names of vendors match in any case, and another name of a vendor is the vendor. An invalid alternative matches
    nothing.
    """
    if token in ("flagos", "vendor", "reference"):
        return str(impl.kind) == token
    prefix, colon, name = token.partition(":")
    if not colon:
        return False
    if prefix == "vendor":
        return (
            impl.kind == BackendImplKind.VENDOR
            and impl.vendor is not None
            and _native.vendor(impl.vendor) == _native.vendor(name)
        )
    return prefix == "impl" and impl.impl_id == name

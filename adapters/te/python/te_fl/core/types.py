"""Implementations of operators, in the words of TransformerEngine-FL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flagos.messages import described
from te_fl.core.native import native as _native


class BackendImplKind(str, Enum):
    """What an implementation is, which decides its place in the default order."""

    DEFAULT = "flagos"
    REFERENCE = "reference"
    VENDOR = "vendor"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class OpImpl:
    """One implementation of one operator.

    ``impl_id`` is unique among the implementations of the operator. ``fn`` is called with the
    arguments of the operator; when it has an attribute ``_is_available``, that is asked whether it
    can run here, and an exception in it means no. ``supported_dtypes`` and ``min_arch`` are for people
    who read the list: nothing is decided by them.
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
        """Whether it can run in this process, by its own account."""
        return why_unavailable(self) is None


def why_unavailable(impl: OpImpl) -> str | None:
    """Why an implementation cannot run, by its own account; ``None`` when it can."""
    probe = getattr(impl.fn, "_is_available", None)
    if not callable(probe):
        return None
    try:
        return None if probe() else "its _is_available() says no"
    # A probe may import and call anything; what it raises is the reason.
    except Exception as error:
        return f"its _is_available() raised {described(error)}"


def match_token(impl: OpImpl, token: str) -> bool:
    """Whether an alternative of an order names ``impl``. Names of vendors match in any case, and
    ``nvidia`` is ``cuda``. An alternative that is not valid names nothing.
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

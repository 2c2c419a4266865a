"""Selection policies: the choice of implementations, for the process or for a region.

A policy replaces the settings of the variables ``TE_FL_*``. Regions are kept in a context variable: a
region belongs to the thread, or the asyncio task, that entered it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from flagos._core import operator as _operator
from te_fl.core.native import native as _native

PREFER_DEFAULT = "flagos"
PREFER_VENDOR = "vendor"
PREFER_REFERENCE = "reference"
VALID_PREFER_VALUES = frozenset({PREFER_DEFAULT, PREFER_VENDOR, PREFER_REFERENCE})

_ORDERS = {
    PREFER_DEFAULT: ["flagos", "vendor", "reference"],
    PREFER_VENDOR: ["vendor", "flagos", "reference"],
    PREFER_REFERENCE: ["reference", "flagos", "vendor"],
}


# As in TE_FL_ALLOW_VENDORS.
_VENDOR = re.compile(r"[A-Za-z0-9_.-]+")


def _refuse_text(name: str, given: object) -> None:
    """Raises TypeError for a str in the place of a collection: its letters would be the elements."""
    if isinstance(given, str):
        raise TypeError(f"{name} is a collection: write [{given!r}], not {given!r}")


@dataclass(frozen=True)
class SelectionPolicy:
    """Which implementations are preferred, allowed and denied.

    ``prefer`` (``flagos``, ``vendor`` or ``reference``) chooses the order for operators without one in
    ``per_op_order``, whose alternatives are ``flagos``, ``vendor``, ``reference``, ``vendor:<name>`` and
    ``impl:<id>``. ``strict``: a failure is raised instead of trying the next implementation. Denied
    vendors beat allowed ones; names of vendors match in any case. Raises ValueError for an invalid value,
    and TypeError for a str in the place of a collection.
    """

    prefer: str = PREFER_DEFAULT
    strict: bool = False
    per_op_order: tuple[tuple[str, tuple[str, ...]], ...] = field(default_factory=tuple)
    deny_vendors: frozenset[str] = field(default_factory=frozenset)
    allow_vendors: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strict, bool):
            raise TypeError(f"strict must be True or False, not {self.strict!r}")
        if isinstance(self.per_op_order, Mapping):
            raise TypeError("per_op_order is of pairs: SelectionPolicy.from_dict takes a dict")
        if self.prefer not in VALID_PREFER_VALUES:
            valid = ", ".join(sorted(VALID_PREFER_VALUES))
            raise ValueError(f"Invalid prefer value: '{self.prefer}'. Must be one of: {valid}")
        for op, order in self.per_op_order:
            _refuse_text(f"the order of {op}", order)
            for token in order:
                _native.token(token)
        for name, vendors in (
            ("deny_vendors", self.deny_vendors),
            ("allow_vendors", self.allow_vendors or ()),
        ):
            _refuse_text(name, vendors)
            for vendor in vendors:
                if not isinstance(vendor, str) or not _VENDOR.fullmatch(vendor):
                    raise ValueError(f"{vendor!r} in {name} is not the name of a vendor")

    @classmethod
    def from_dict(
        cls,
        prefer: str = PREFER_DEFAULT,
        strict: bool = False,
        per_op_order: Mapping[str, Iterable[str]] | None = None,
        deny_vendors: Iterable[str] | None = None,
        allow_vendors: Iterable[str] | None = None,
    ) -> SelectionPolicy:
        """A policy from lists and sets. An empty ``allow_vendors`` allows every vendor."""
        orders = sorted((per_op_order or {}).items())
        for op, order in orders:
            _refuse_text(f"the order of {op}", order)
        _refuse_text("deny_vendors", deny_vendors)
        _refuse_text("allow_vendors", allow_vendors)
        return cls(
            prefer=prefer.lower() if isinstance(prefer, str) else prefer,
            strict=strict,
            per_op_order=tuple((op, tuple(order)) for op, order in orders),
            deny_vendors=frozenset(deny_vendors or ()),
            allow_vendors=frozenset(allow_vendors) if allow_vendors else None,
        )

    @property
    def per_op_order_dict(self) -> dict[str, list[str]]:
        """Operator → its order."""
        return {op: list(order) for op, order in self.per_op_order}

    def get_per_op_order(self, op_name: str) -> list[str] | None:
        """The order of one operator in ``per_op_order``, or ``None``."""
        return self.per_op_order_dict.get(op_name)

    def get_default_order(self) -> list[str]:
        """The order of the operators without one in ``per_op_order``."""
        return list(_ORDERS[self.prefer])

    def is_vendor_allowed(self, vendor_name: str) -> bool:
        """Whether implementations of a vendor may be taken."""
        vendor = _native.vendor(vendor_name)
        if vendor in map(_native.vendor, self.deny_vendors):
            return False
        return self.allow_vendors is None or vendor in map(_native.vendor, self.allow_vendors)

    def fingerprint(self) -> str:
        """Text that is equal for equal policies."""
        parts = [f"prefer={self.prefer}", f"st={int(self.strict)}"]
        if self.allow_vendors:
            parts.append(f"allow={','.join(sorted(self.allow_vendors))}")
        if self.deny_vendors:
            parts.append(f"deny={','.join(sorted(self.deny_vendors))}")
        if self.per_op_order:
            orders = (f"{op}={'|'.join(order)}" for op, order in self.per_op_order)
            parts.append(f"per={';'.join(orders)}")
        return ";".join(parts)


_EVERYTHING = frozenset({"prefer", "strict", "per_op", "deny", "allow"})


class _Scope:
    """A policy in force, with the parts that it sets. ``flagos.toml`` decides the other parts."""

    def __init__(self, policy: SelectionPolicy, says: frozenset[str], source: str) -> None:
        if not isinstance(policy, SelectionPolicy):
            raise TypeError(f"a policy is a SelectionPolicy, not {policy!r}")
        self.policy = policy
        self.says = says
        deny, allow = sorted(policy.deny_vendors), policy.allow_vendors
        self.layer = _native.layer(
            source,
            prefer=policy.prefer if "prefer" in says else None,
            # False is the default of a policy, so it does not switch off a strict mode set elsewhere.
            strict=True if policy.strict and "strict" in says else None,
            per_op=[(op, list(order)) for op, order in policy.per_op_order],
            deny_vendors=deny if deny and "deny" in says else None,
            allow_vendors=sorted(allow) if allow is not None and "allow" in says else None,
        )


_variable: ContextVar[Any] = _operator.policy_variable


class PolicyManager:
    """The policies of the process and of regions. A process has one instance."""

    _instance: PolicyManager | None = None
    _lock = threading.RLock()

    def __init__(self) -> None:
        self._global: _Scope | None = None
        self._change = threading.RLock()

    @classmethod
    def get_instance(cls) -> PolicyManager:
        with cls._lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def get_policy_epoch(self) -> int:
        """The number of changes of policies and registries so far."""
        return _operator.epoch()

    def bump_policy_epoch(self) -> int:
        """Makes every operator resolve again at its next call."""
        return _operator.advance()

    def get_policy(self) -> SelectionPolicy:
        """The policy in force here: of the region, else of the process, else of the variables."""
        scope = self._scope()
        return scope.policy if scope is not None else self._policy_from_env()

    def _scope(self) -> _Scope | None:
        over = _variable.get(None)
        return over.policy if over is not None else self._global

    def set_global_policy(self, policy: SelectionPolicy) -> SelectionPolicy:
        with self._change:
            old = self._global
            scope = _Scope(policy, _EVERYTHING, "te_fl.core.set_global_policy")
            _native.set_layer(scope.layer)
            self._global = scope
            _operator.advance()
        return old.policy if old is not None else self._policy_from_env()

    def reset_global_policy(self) -> None:
        with self._change:
            layer = _native.variables_now()["layer"]
            self._global = None
            _native.set_layer(layer)
            _operator.advance()

    def create_policy_context(self, policy: SelectionPolicy) -> _PolicyContext:
        return _PolicyContext(policy, _EVERYTHING)

    @staticmethod
    def _policy_from_env() -> SelectionPolicy:
        return _from_variables()[0]


def _from_variables() -> tuple[SelectionPolicy, frozenset[str]]:
    """The policy of the variables, and the parts that they set."""
    variables = _native.variables_now()
    policy = SelectionPolicy.from_dict(
        prefer=variables["prefer"] or PREFER_DEFAULT,
        strict=bool(variables["strict"]),
        per_op_order=dict(variables["per_op"]),
        deny_vendors=variables["deny_vendors"],
        allow_vendors=variables["allow_vendors"],
    )
    given = {
        "prefer": variables["prefer"],
        "strict": variables["strict"],
        "deny": variables["deny_vendors"],
        "allow": variables["allow_vendors"],
    }
    return policy, frozenset(part for part, value in given.items() if value is not None)


class _PolicyContext:
    """A region under a policy. Can be entered repeatedly, and by several threads and tasks."""

    def __init__(self, policy: SelectionPolicy, says: frozenset[str]) -> None:
        self._scope = _Scope(policy, says, "the policy context")
        # A context variable keeps the tokens of two tasks inside the same object apart.
        self._tokens: ContextVar[tuple[Token[Any], ...]] = ContextVar("te_fl_tokens", default=())

    def __enter__(self) -> _PolicyContext:
        token = _variable.set(_operator.policy_override(self._scope))
        self._tokens.set((*self._tokens.get(), token))
        _operator.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        *rest, token = self._tokens.get()
        self._tokens.set(tuple(rest))
        try:
            _variable.reset(token)
        finally:
            _operator.leave()


def get_policy_epoch() -> int:
    """The number of changes of policies and registries so far."""
    return PolicyManager.get_instance().get_policy_epoch()


def bump_policy_epoch() -> int:
    """Makes every operator resolve again at its next call. Returns the new epoch."""
    return PolicyManager.get_instance().bump_policy_epoch()


def get_policy() -> SelectionPolicy:
    """The policy in force here: of the region, else of the process, else of the variables."""
    return PolicyManager.get_instance().get_policy()


def set_global_policy(policy: SelectionPolicy) -> SelectionPolicy:
    """Sets the policy of the process, in the place of ``TE_FL_*``, and returns the previous policy."""
    return PolicyManager.get_instance().set_global_policy(policy)


def reset_global_policy() -> None:
    """Sets the policy of the process to that of the current values of ``TE_FL_*``."""
    PolicyManager.get_instance().reset_global_policy()


def policy_from_env() -> SelectionPolicy:
    """The policy of the current values of ``TE_FL_*``.

    Raises :class:`flagos.ConfigError` that names an invalid variable.
    """
    return PolicyManager.get_instance()._policy_from_env()


def policy_context(policy: SelectionPolicy) -> _PolicyContext:
    """A region under ``policy``.

    >>> with policy_context(SelectionPolicy(prefer="vendor")):
    ...     y = manager.call("gelu", x, None)
    """
    return PolicyManager.get_instance().create_policy_context(policy)


def _changed(part: str, **change: Any) -> _PolicyContext:
    """The policy in force here, with one part changed."""
    scope = PolicyManager.get_instance()._scope()
    policy, says = (scope.policy, scope.says) if scope is not None else _from_variables()
    values: dict[str, Any] = {
        "prefer": policy.prefer,
        "strict": policy.strict,
        "per_op_order": policy.per_op_order_dict,
        "deny_vendors": policy.deny_vendors,
        "allow_vendors": policy.allow_vendors,
        **change,
    }
    return _PolicyContext(SelectionPolicy.from_dict(**values), says | {part})


def _names(vendors: tuple[str, ...]) -> set[str]:
    for vendor in vendors:
        if not isinstance(vendor, str):
            raise TypeError(f"each vendor is an argument of its own: {vendor!r} is no name")
    return set(vendors)


def with_strict_mode() -> _PolicyContext:
    """A region that raises the failure of an implementation instead of trying the next."""
    return _changed("strict", strict=True)


def with_preference(prefer: str) -> _PolicyContext:
    """A region that prefers ``flagos``, ``vendor`` or ``reference``."""
    return _changed("prefer", prefer=prefer)


def with_allowed_vendors(*vendors: str) -> _PolicyContext:
    """A region in which only these vendors may serve."""
    return _changed("allow", allow_vendors=_names(vendors))


def with_denied_vendors(*vendors: str) -> _PolicyContext:
    """A region that denies these vendors, in addition to those denied already."""
    return _changed("deny", deny_vendors={*get_policy().deny_vendors, *_names(vendors)})


def _after_fork_in_child() -> None:
    PolicyManager._lock = threading.RLock()
    if PolicyManager._instance is not None:
        PolicyManager._instance._change = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)

"""Dispatch of operators: the choice of an implementation, and the fallback when it fails.

``manager.call`` and the operators of ``manager.bound`` are objects of the native module. They keep the
function that an operator resolved to and call it directly. They call this module only after a change of a
policy or a registration, and when the function raised.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from typing import Any

from flagos._core import (
    FlagosError,
    ForkedError,
    InvalidArgumentError,
    Operator,
    UnsupportedError,
    vendor_info,
)
from flagos._core import configuration as _configuration
from flagos._core import foreign as _foreign
from flagos._core import operator as _operator
from flagos.messages import described, message_of
from te_fl.calls import Args, Kwargs
from te_fl.core.discovery import discover_plugin
from te_fl.core.logger_manager import get_logger
from te_fl.core.native import native as _native
from te_fl.core.registry import OpRegistry
from te_fl.core.signatures import known, writes
from te_fl.core.types import BackendImplKind, OpImpl
from te_fl.core.watch import watched, wrote

_NAMESPACE = "te::"
# Errors of a failed or full device: another implementation on the same device is not tried.
_DEVICE_ERRORS = frozenset({"AcceleratorError", "OutOfMemoryError", "DeviceError", "ForkedError"})


@cache
def _lost_words() -> list[str]:
    """Parts of the messages by which libraries report that the vendor's device is lost."""
    try:
        return vendor_info()["device_lost"]
    except FlagosError:  # its library cannot be loaded, so no device of it was in use
        return []


class OpManager:
    """Dispatches operators to the implementations of a registry.

    >>> manager = OpManager(registry)
    >>> out, rsigma = manager.call("rmsnorm_fwd", x, weight, eps=1e-5)
    """

    #: ``call(op_name, *args, **kwargs)``: calls an operator. Raises RuntimeError when no implementation can
    #: serve it, and the implementation's own error when no other implementation may be tried.
    call: Callable[..., Any]

    def __init__(self, registry: OpRegistry | None = None) -> None:
        self._registry = registry if registry is not None else OpRegistry()
        self._lock = threading.RLock()
        self._initialized = False
        self._registering = False
        self._compat = False
        self._strict_is_off = False
        self._used: dict[str, str] = {}
        self._reported: set[tuple[str, str, type[Exception]]] = set()
        #: Operator → number of calls that another implementation served after the chosen one failed.
        self.fallbacks: dict[str, int] = {}
        self._bound: dict[str, Operator] = {}
        self._rankings: dict[str, tuple[int, Any, list[OpImpl], bool]] = {}
        self.call = _operator.by_name(self._bound, self.bound, self._call_by_keyword)
        _managers.add(self)

    @property
    def registry(self) -> OpRegistry:
        """The implementations this manager dispatches to."""
        return self._registry

    def bump_policy_epoch(self) -> None:
        """Makes every operator probe its implementations and resolve again at its next call."""
        _operator.advance()

    def ensure_initialized(self) -> None:
        """Registers the operators of this package and of plugins, and checks the configuration.

        Runs once per manager; a run that failed is repeated at the next call. Raises
        :class:`flagos.ConfigError` for a wrong variable, file or named plugin.
        """
        if self._initialized:
            return
        with self._lock:
            # `_registering` is set when a plugin calls an operator while it registers.
            if self._initialized or self._registering:
                return
            self._registering = True
            try:
                self._register()
                self._registry._store.check()
            finally:
                self._registering = False
            self._initialized = True
        _operator.advance()
        logger = get_logger()
        for warning in _unknown_variables():
            logger.warning(warning)
        impls = [i for found in self._registry.snapshot().impls_by_op.values() for i in found]
        operators = len(self._registry.list_operators())
        logger.info(f"OpManager initialized: {operators} ops with {len(impls)} implementations")
        for kind in BackendImplKind:
            logger.debug(f"  {kind.name}: {sum(impl.kind == kind for impl in impls)}")
        logger.info(f"Registered impl_ids: {sorted({impl.impl_id for impl in impls})}")

    def _register(self) -> None:
        # Imported late: the operators import torch and the classes of this package.
        from te_fl.core import builtin_ops

        variables = _native.variables_now()
        self._compat, self._strict_is_off = variables["compat"], variables["strict_is_off"]
        builtin_ops.register_builtins(self._registry)
        if not self._plugins_loaded:
            discover_plugin(self._registry)
            self._plugins_loaded = True

    _plugins_loaded = False

    # ---- which implementation

    def resolve(self, op_name: str) -> Callable[..., Any]:
        """The function that serves an operator here. Raises RuntimeError when no implementation can."""
        return self._rank(op_name)[0][0].fn

    def resolve_candidates(self, op_name: str) -> list[OpImpl]:
        """Every usable implementation that the policy names, the chosen one first."""
        return list(self._rank(op_name)[0])

    def get_selected_impl_id(self, op_name: str) -> str:
        """The id of the implementation that serves an operator here."""
        return self._rank(op_name)[0][0].impl_id

    def _rank(self, op_name: str) -> tuple[list[OpImpl], bool]:
        """The usable implementations, and whether a failure of the first is final."""
        over = _operator.policy_variable.get(None)
        layer = over.policy.layer if over is not None else None
        known_before = self._rankings.get(op_name)
        # Answers of probes, policies and registrations are valid for one epoch.
        if known_before is not None and known_before[:2] == (_operator.epoch(), layer):
            return known_before[2], known_before[3]
        self.ensure_initialized()
        self._registry.probe(op_name)
        while True:
            epoch = _operator.epoch()
            usable, strict = self._usable(op_name, layer)
            try:
                candidates = [self._implementation(op_name, *found) for found in usable]
            except LookupError:  # unregistered by another thread since, and out of the next answer
                continue
            self._rankings[op_name] = (epoch, layer, candidates, strict)
            return candidates, strict

    def _usable(self, op_name: str, layer: int | None) -> tuple[list[tuple[str, int | None]], bool]:
        """Id and token of every usable implementation, and whether a failure of the first is final."""
        try:
            usable, strict, blocked = self._registry._store.rank(op_name, layer)
        except InvalidArgumentError as error:
            raise UnsupportedError(
                f"No available implementation for op='{op_name}': {self._near(op_name)}"
            ) from error
        if not usable:
            registered = [impl.impl_id for impl in self._registry.get_implementations(op_name)]
            raise UnsupportedError(
                f"No available implementation for op='{op_name}'. Registered: {registered}; {blocked}"
            )
        return usable, strict

    def _implementation(self, op_name: str, impl_id: str, token: int | None) -> OpImpl:
        impl = self._registry.get_implementation(op_name, impl_id)
        if impl is not None or token is None:
            assert impl is not None, f"{impl_id} is in the core but has no function"
            return impl
        # `flagos.register("te::...")` registered it with the core, past this registry.
        return OpImpl(op_name, impl_id, BackendImplKind.DEFAULT, _foreign(token))

    def _near(self, op_name: str) -> str:
        if known(op_name):
            return (
                "nothing registered one; TransformerEngine's native module has it (NVTE_PLUGIN=te_fl), "
                "or a plugin may"
            )
        near = get_close_matches(op_name, self._registry.list_operators(), 1)
        return (
            f"did you mean '{near[0]}'?"
            if near
            else "`flagos ops --filter te::` lists the operators"
        )

    # ---- calls

    def bound(self, op_name: str) -> Operator:
        """A callable of one operator: ``bound("gelu")(x, None)``. It follows every later change."""
        if not isinstance(op_name, str):
            raise TypeError(f"the name of an operator must be a str, not {type(op_name).__name__}")
        op = self._bound.get(op_name)
        if op is None:
            qualified = op_name if "::" in op_name else f"{_NAMESPACE}{op_name}"
            op = Operator(qualified, resolve=self._resolve, failed=self._failed)
            # With several threads, all callers get the object of the first.
            op = self._bound.setdefault(op_name, op)
        return op

    def _call_by_keyword(self, op_name: str, *args: Any, **kwargs: Any) -> Any:
        return self.bound(op_name)(*args, **kwargs)

    def _resolve(self, op: Operator) -> Callable[..., Any]:
        """The native object's callback: the function to call, kept for the epoch read before ranking."""
        name = op.name.removeprefix(_NAMESPACE)
        self.ensure_initialized()
        self._registry.probe(name)
        epoch = _operator.epoch()
        candidates, _ = self._rank(name)
        chosen = candidates[0]
        self._announce(name, chosen)
        target = chosen.fn
        # The fallback must know what an operator wrote. Signatures tell it only for known operators.
        if len(candidates) > 1 and not known(name):
            target = watched(target)
        self._remember(op, epoch, target)
        return target

    def _remember(self, op: Operator, epoch: int, target: Callable[..., Any]) -> None:
        over = _operator.policy_variable.get(None)
        if over is None:
            op.bind(epoch, target)
        else:
            _operator.bind_under(over, op, epoch, target)

    def _announce(self, op_name: str, impl: OpImpl) -> None:
        last = self._used.get(op_name)
        if last == impl.impl_id:
            return
        self._used[op_name] = impl.impl_id
        what = "using" if last is None else f"switched from '{last}' to"
        get_logger().info(
            f"Op '{op_name}' {what} '{impl.impl_id}' (kind={impl.kind!s}, vendor={impl.vendor})"
        )

    # ---- failures

    def _failed(
        self,
        op: Operator,
        target: Callable[..., Any],
        error: Exception,
        args: Args,
        kwargs: Kwargs,
    ) -> Any:
        """The native object's callback after ``target`` raised ``error``.

        Returns the result of another implementation, or NotImplemented to have ``error`` raised.
        """
        name = op.name.removeprefix(_NAMESPACE)
        epoch = _operator.epoch()
        candidates, strict = self._rank(name)
        if self._compat:
            strict = self._strict_is_off
        if strict or not self._may_try_another(name, error, args, kwargs):
            return NotImplemented
        failed = getattr(target, "__wrapped__", target)
        at = next(
            (i for i, impl in enumerate(candidates) if impl.fn is failed or impl.fn is target), None
        )
        rest = candidates[at + 1 :] if at is not None else []
        if not rest:
            return NotImplemented
        assert at is not None
        self._tell_failure(name, candidates[at], error)
        errors = [f"'{candidates[at].impl_id}': {described(error)}"]
        own, types = _is_own(candidates[at]), {type(error)}
        for impl in rest:
            fn = impl.fn if known(name) else watched(impl.fn)
            try:
                result = fn(*args, **kwargs)
            except Exception as next_error:
                if not self._may_try_another(name, next_error, args, kwargs):
                    raise
                error = next_error
                own = own and _is_own(impl)
                types.add(type(error))
                self._tell_failure(name, impl, error)
                errors.append(f"'{impl.impl_id}': {described(error)}")
                continue
            self._fell_back(name, impl)
            if self._compat:
                # The compatible mode keeps the implementation that worked until the next change.
                self._remember(op, epoch, impl.fn)
            return result
        if not self._compat and own and len(types) == 1:
            # An operator of this package and its plain formula refuse the same call: the error says all.
            return NotImplemented
        raise RuntimeError(
            f"All {len(errors)} implementation(s) failed for op='{name}'. Last error: {message_of(error)}. "
            f"In order: {'; '.join(errors)}"
        ) from error

    def _tell_failure(self, op_name: str, impl: OpImpl, error: Exception) -> None:
        """Logs a failure once per type of error: the text of an error may differ at every call."""
        failure = (op_name, impl.impl_id, type(error))
        if failure not in self._reported:
            self._reported.add(failure)
            get_logger().warning(
                f"Implementation '{impl.impl_id}' failed for op '{op_name}': {message_of(error)}"
            )

    def _fell_back(self, op_name: str, impl: OpImpl) -> None:
        self.fallbacks[op_name] = self.fallbacks.get(op_name, 0) + 1
        get_logger().info_once(
            f"Op '{op_name}' fallback to '{impl.impl_id}' (kind={impl.kind!s}, vendor={impl.vendor})"
        )

    def _may_try_another(self, op_name: str, error: Exception, args: Args, kwargs: Kwargs) -> bool:
        """Whether the failed call left its arguments unwritten and the device usable."""
        classes = {cls.__name__ for cls in type(error).__mro__}
        if classes & _DEVICE_ERRORS or any(word in message_of(error) for word in _lost_words()):
            return False
        # Implementations raise UnsupportedError before they write.
        if isinstance(error, UnsupportedError):
            return True
        return not (writes(op_name, args, kwargs) if known(op_name) else wrote(error))

    def call_with_custom_impl(
        self,
        op_name: str,
        current_impl_class: type,
        call_impl_fn: Callable[[type], Any],
    ) -> Any:
        """Calls ``call_impl_fn`` with the class that an operator's implementation returns.

        For operators such as ``get_flash_attention_class``. ``current_impl_class`` comes first; when it
        fails, the classes of the other implementations follow in order.
        """
        candidates, strict = self._rank(op_name)
        if self._compat:
            strict = self._strict_is_off
        classes: list[tuple[type, OpImpl | None]] = [(current_impl_class, None)]
        for impl in candidates:
            found = self._class_of(impl)
            if found is current_impl_class:
                classes[0] = (found, impl)
            elif found is not None:
                classes.append((found, impl))
        errors: list[Exception] = []
        for cls, serving in classes:
            try:
                result = call_impl_fn(cls)
            except Exception as error:
                errors.append(error)
                if strict or not self._may_try_another(op_name, error, (), {}):
                    raise
                get_logger().warning_once(
                    f"{cls.__name__} failed for op '{op_name}': {message_of(error)}"
                )
                continue
            if serving is not None:
                if errors:
                    self._fell_back(op_name, serving)
                else:
                    self._announce(op_name, serving)
            return result
        if len(errors) == 1:
            raise errors[0]
        raise RuntimeError(
            f"All {len(errors)} implementation(s) failed for op='{op_name}'. Last error: {message_of(errors[-1])}"
        ) from errors[-1]

    def _class_of(self, impl: OpImpl) -> type | None:
        try:
            found: type = impl.fn()
        # A plugin's function may raise any exception; the classes of the others are still tried.
        except Exception as error:
            self._tell_failure(impl.op_name, impl, error)
            return None
        return found


def _is_own(impl: OpImpl) -> bool:
    """Whether this package has the implementation: an operator, or its plain formula."""
    module = str(getattr(impl.fn, "__module__", ""))
    return module.startswith(("te_fl.operators.", "te_fl.reference."))


def _unknown_variables() -> list[str]:
    """A warning for each unknown variable with a prefix of TransformerEngine-FL's variables."""
    try:
        warnings = _configuration()["warnings"]
    except ForkedError:
        # The configuration needs the runtime, which a child of a fork does not have.
        return []
    return [warning for warning in warnings if warning.startswith(("TE_FL_", "TEFL_"))]


_managers: weakref.WeakSet[OpManager] = weakref.WeakSet()
_default: OpManager | None = None
_default_lock = threading.RLock()


def get_default_manager() -> OpManager:
    """The manager of the process. Its implementations are in the core's plan."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = OpManager(OpRegistry(_of_process=True))
    return _default


def reset_default_manager() -> None:
    """Makes the next :func:`get_default_manager` return a new manager. The old one leaves the core's plan."""
    global _default
    with _default_lock:
        if _default is not None:
            _default.registry._leave_process()
        _default = None


def _after_fork_in_child() -> None:
    # The child keeps all registrations. A lock may be held by a thread that the child does not have.
    global _default_lock
    _default_lock = threading.RLock()
    for manager in _managers:
        manager._lock = threading.RLock()
        manager._registering = False


os.register_at_fork(after_in_child=_after_fork_in_child)

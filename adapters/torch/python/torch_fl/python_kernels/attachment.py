"""Python functions as kernels of operators, over the native kernels, which serve the calls that a function declines.

What serves an operator may change while other threads call it: torch's dispatcher gets one function for each operator,
once, and that function calls the kernel that C++ names for each call (`csrc/python_kernels/routed.cc`). A call ends
with the kernel that it began with; one whose kernel has been detached before Python is entered runs natively.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from flagos import UnsupportedError, _core
from torch_fl.calls import Args, Kwargs
from torch_fl.native import native

# A kernel gets the dispatch keys of the tensors that it is called with: flagos' or the native device's.
Kernel = Callable[..., Any]

_CARRIER = "MAIA"  # as `kCarrier` in C++

_lock = threading.RLock()
_calls: Counter[str] = Counter()
_declined: dict[str, Counter[str]] = {}
_MOST_REASONS = 20  # of an operator: reasons may name shapes
_running = threading.local()
_numbers = itertools.count(1)
_kernels: dict[int, Kernel] = {}
_attached: dict[str, int] = {}  # the number of the kernel that serves an operator
_carried: dict[str, _Carried] = {}


class Implementation(NamedTuple):
    """A function that may serve an operator."""

    fn: Callable[..., Any]
    backend: str
    native: bool  # takes tensors of the native device
    only: tuple[str, ...]  # conditions; calls that break one go to the native kernel


def require_operator(op: str) -> torch._ops.OpOverload:
    """The overload called `op`. Raises ValueError if torch has no such overload."""
    namespace, name = op.split("::", 1)
    base, _, overload = name.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    except AttributeError as error:
        raise ValueError(f"torch has no operator {op!r}: {error}") from None
    assert isinstance(found, torch._ops.OpOverload)
    return found


def calls() -> dict[str, int]:
    """Calls that Python kernels served, by operator. The slots of operators count all other calls."""
    with _lock:
        return dict(_calls)


def reset_calls() -> None:
    """Set the counts to zero."""
    with _lock:
        _calls.clear()
        _declined.clear()


def declined() -> dict[str, dict[str, int]]:
    """Calls that Python kernels declined, by operator and reason; not those that never entered Python."""
    with _lock:
        return {op: dict(reasons) for op, reasons in _declined.items()}


def _decline(op: str, reason: str) -> None:
    """Count a declined call. Raises in strict mode, or beyond the budget of fallbacks."""
    reason = reason or "declined by the implementation"
    _core.record_fallback(op, reason)
    with _lock:
        reasons = _declined.setdefault(op, Counter())
        reasons[reason if reason in reasons or len(reasons) < _MOST_REASONS else "others"] += 1


class _Carried(NamedTuple):
    """An operator's function in torch's dispatcher."""

    overload: torch._ops.OpOverload
    places: list[tuple[int, str]]  # of the operator's tensors
    library: torch.library.Library  # which holds the function there
    below: Any  # the kernel for flagos tensors that was there before; None if there was none


def attach_kernel(
    op: str,
    kernel: Kernel,
    backend: str,
    *,
    on_native: bool,
    recorded: bool = False,
    only: tuple[str, ...] = (),
    packed: Packed | None = None,
    faster: tuple[int, ...] | None = None,
) -> None:
    """Have `kernel` serve `op` from the next call on, in place of what serves it now.

    `kernel(keys, *args, **kwargs)` gets tensors of the native device if `on_native`; then calls in `packed` are
    replayed, others recorded if `recorded`, and those that break a condition of `only` run natively. So do, unless
    `faster` is None, calls of other classes than these, and those of signatures that are not replayed.
    """
    with _lock:
        if op not in _carried:
            _carried[op] = _carry(op)
        number = next(_numbers)
        _kernels[number] = kernel
        rows = () if packed is None else packed.rows
        outside = packed is None or packed.outside
        try:
            torch.ops.flagos.attach_kernel(
                op, number, backend, on_native, only, recorded, rows, outside, faster
            )
        except BaseException:
            del _kernels[number]
            raise
        _kernels.pop(_attached.pop(op, 0), None)
        _attached[op] = number


def detach(op: str) -> None:
    """Have the native kernel serve `op` from the next call on."""
    with _lock:
        torch.ops.flagos.detach_kernel(op)
        _kernels.pop(_attached.pop(op, 0), None)


def _carry(op: str) -> _Carried:
    """Put a function for `op` where C++ finds it. It stays there."""
    overload = require_operator(op)
    namespace, name = op.split("::", 1)
    called = torch.ops.flagos.called_implementation.default

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        found = _kernels.get(called())
        if found is None:
            return _run_natively(op, keys, args, kwargs)
        return found(keys, *args, **kwargs)

    has_below = torch._C._dispatch_has_computed_kernel_for_dispatch_key(op, "PrivateUse1")
    below = torch.library.get_kernel(overload, "PrivateUse1") if has_below else None
    library = torch.library.Library(namespace, "IMPL")
    library.impl(name, kernel, _CARRIER, with_keyset=True)
    return _Carried(overload, _tensor_places(overload), library, below)


def _run_natively(op: str, keys: torch._C.DispatchKeySet, args: Any, kwargs: Kwargs) -> Any:
    """The native kernel's result."""
    carried = _carried[op]
    args, kwargs = _numbers_as_tensors(carried.places, args, kwargs)
    if not keys.has(torch._C.DispatchKey.PrivateUse1):
        return carried.overload.redispatch(keys, *args, **kwargs)
    if carried.below is None:
        raise UnsupportedError(f"{op} has no native kernel for calls that implementations decline")
    return carried.below.call_boxed(keys, *args, **kwargs)


def _tensor_places(overload: torch._ops.OpOverload) -> list[tuple[int, str]]:
    return [
        (position, argument.name)
        for position, argument in enumerate(overload._schema.arguments)
        if "Tensor" in str(argument.type)
    ]


def attach(op: str, chosen: Implementation) -> None:
    """Have `chosen`, which takes flagos tensors, serve `op`."""
    overload = require_operator(op)
    written = [
        (position, argument.name)
        for position, argument in enumerate(overload._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        running: set[str] = _running.__dict__.setdefault("operators", set())
        if op in running:  # the implementation calls its own operator
            return _run_natively(op, keys, args, kwargs)
        targets = [
            args[position] if position < len(args) else kwargs.get(argument)
            for position, argument in written
        ]
        before = [_versions(target) for target in targets]
        running.add(op)
        try:
            with _counting_writes() if targets else nullcontext():
                result = chosen.fn(*args, **kwargs)
        except NotImplementedError as refusal:  # flagos.UnsupportedError is one too
            if [_versions(target) for target in targets] != before:
                raise RuntimeError(
                    f"the implementation of {op} declined the call after it had written to an "
                    "argument, so no other implementation can take over; it must decline first"
                ) from refusal
            why = str(refusal)
        else:
            with _lock:
                _calls[op] += 1
            _core.log_dispatch(op, chosen.backend)
            return result
        finally:
            running.discard(op)
        _decline(op, why)
        return _run_natively(op, keys, args, kwargs)

    attach_kernel(op, kernel, chosen.backend, on_native=False)


class Packed(NamedTuple):
    """The entry of an operator in a kernel pack: the place of its rows, for C++, and who serves other calls."""

    rows: tuple[
        int, int, int
    ]  # the word at which they begin, their number, and the flags that they need to serve
    outside: bool  # whether the implementation serves calls that are not among them


class OnNativeTensors:
    """A function as an implementation of `op` that gets native tensors of type `device_type`."""

    def __init__(self, op: str, fn: Callable[..., Any], device_type: str) -> None:
        self._fn = fn
        self._device_type = device_type
        overload = require_operator(op)
        schema = overload._schema
        self.tensor_places = _tensor_places(overload)
        # The written arguments. With as many of them as results, they are the results.
        self._written = [
            (position, argument.name)
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self._in_place = bool(self._written) and len(self._written) == len(schema.returns)

    @staticmethod
    def _value_at(place: tuple[int, str], args: Any, kwargs: Any) -> Any:
        position, argument = place
        return args[position] if position < len(args) else kwargs.get(argument)

    def inputs(self, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """The native tensors among the arguments, in order."""
        found: list[torch.Tensor] = []
        for place in self.tensor_places:
            value = self._value_at(place, args, kwargs)
            for leaf in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(leaf, torch.Tensor) and leaf.device.type == self._device_type:
                    found.append(leaf)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result, in the written arguments where they are the results."""
        result = self._fn(*args, **kwargs)
        if not self._in_place:
            return result
        targets = [self._value_at(place, args, kwargs) for place in self._written]
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for target, made in zip(targets, results, strict=False):
            if isinstance(made, torch.Tensor) and made is not target:
                target.resize_(made.shape).copy_(made)
        return targets[0] if len(targets) == 1 else tuple(targets)


def attach_native(
    op: str,
    chosen: Implementation,
    recorded: bool,
    packed: Packed | None = None,
    faster: tuple[int, ...] | None = None,
) -> None:
    """Have `chosen` serve `op` with native tensors; calls in `packed` are replayed, others recorded if `recorded`.

    With `faster`, the native kernel serves calls of other classes than these.
    """
    from torch_fl.python_kernels import capture

    device_type = native().device_type
    assert device_type is not None, "what is native is registered only where the device has a type"
    run = OnNativeTensors(op, chosen.fn, device_type)

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        words: list[int] | capture.Refusal | None = None
        inputs: list[torch.Tensor] = []
        try:
            if torch.ops.flagos.recording_wanted():
                inputs = run.inputs(args, kwargs)
                result, words = capture.record(run, inputs, args, kwargs)
            else:
                result = run(*args, **kwargs)
        except NotImplementedError as refusal:  # flagos.UnsupportedError is one too
            why = str(refusal)
        else:
            if isinstance(words, capture.Refusal):
                seen = capture.describe_inputs(inputs)
                torch.ops.flagos.refuse_recording(f"{words} ({seen})")
            elif words is not None:
                torch.ops.flagos.offer_recording(words)
            _core.log_dispatch(op, chosen.backend)
            return result
        _decline(op, why)
        _core.log_dispatch(op, device_type)
        return _run_natively(op, keys, args, kwargs)

    attach_kernel(
        op,
        kernel,
        chosen.backend,
        on_native=True,
        recorded=recorded,
        only=chosen.only,
        packed=packed,
        faster=faster,
    )


def call_class(op: str, args: Args, kwargs: Kwargs) -> tuple[int, str]:
    """The class of a call by what its speed depends on, as a number and in words (`CallClasses` in C++).

    The tensors need no memory. Raises TypeError for a call without an argument that has no default.
    """
    given: list[Any] = []
    for place, argument in enumerate(require_operator(op)._schema.arguments):
        if place < len(args):
            given.append(args[place])
        elif argument.name in kwargs:
            given.append(kwargs[argument.name])
        elif argument.has_default_value():
            given.append(argument.default_value)
        else:
            raise TypeError(f"{op} takes `{argument.name}`, which the call does not give")
        value = given[-1]
        if isinstance(value, (torch.memory_format, torch.layout, torch.Generator)):
            given[-1] = None  # of which classes know nothing
        elif isinstance(value, (list, tuple)):  # torch infers no type of an empty list
            given[-1] = [one for one in value if one is not None] or ()
    number, words = torch.ops.flagos.call_class(op, given)
    return number, words


def _counting_writes() -> Any:
    # Kernels run below torch's layer that counts in-place writes. The guard enables it for the implementation.
    return torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False)


def _numbers_as_tensors(
    tensors: list[tuple[int, str]], args: Any, kwargs: Kwargs
) -> tuple[list[Any], Kwargs]:
    """The arguments, with numbers in the place of tensors converted to tensors that promote the same way.

    For a call such as `x + 1` torch passes the number itself to a Python kernel.
    """
    args, kwargs = list(args), dict(kwargs)
    beside = next((a for a in [*args, *kwargs.values()] if isinstance(a, torch.Tensor)), None)
    for position, name in tensors:
        place: Any = args if position < len(args) else kwargs
        key: Any = position if position < len(args) else name
        if key == name and name not in kwargs:
            continue
        number = place[key]
        if beside is not None and isinstance(number, (bool, int, float, complex)):
            widest = {float: torch.float64, complex: torch.complex128}.get(type(number))
            place[key] = torch.tensor(number, dtype=widest).to(torch.result_type(beside, number))
    return args, kwargs


def _versions(target: Any) -> Any:
    if isinstance(target, torch.Tensor):
        return target._version if not target.is_inference() else None
    if isinstance(target, (list, tuple)):
        return [_versions(item) for item in target]
    return None

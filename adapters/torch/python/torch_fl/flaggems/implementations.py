"""FlagGems' overloads in the registry, each with its verdict on this chip."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import torch

from flagos import UnsupportedError, _core, plan_listeners
from torch_fl import flaggems_versions, python_kernels, tools
from torch_fl.calls import Args, Kwargs
from torch_fl.flaggems import (
    envelope,
    interpreted,
    meta,
    pack_file,
    pack_in_use,
    package,
    presence,
    sizes,
    table_file,
    tables,
)
from torch_fl.flaggems.parts import PARTS
from torch_fl.native import native

BACKEND = "flaggems"
_FIRST_CALLS = (
    "first-calls"  # the part of torch-fl-tools that admits calls of which nothing was verified
)

_registered: dict[str, str] = {}
_functions: dict[str, Function] = {}
_missing = "it is not installed (see `flagos doctor`)"

# Operators that move data between devices, dtypes and layouts, which only the device itself can serve.
_NOT_ROUTED = frozenset(
    [
        "_to_copy",
        "copy",
        "copy_",
        "contiguous",
        "resolve_conj",
        "resolve_neg",
        "to_copy",
        "to.dtype",
        "_assert_async",
    ]
)


# Exceptions of Python code before a kernel runs, as opposed to errors of torch, Triton and the device.
_REFUSALS = (AssertionError, TypeError, ValueError, LookupError, ArithmeticError)


class Function:
    """A function of FlagGems, looked up at its first call unless it is given.

    Raises flagos.UnsupportedError, upon which the native kernel serves, for arguments that it raises for itself:
    what it does not take, or what is an error of torch as well. One that writes to its arguments may have begun to,
    and its errors are the caller's, but for NotImplementedError, which says that nothing was done; it is called
    only with what torch would take as it is (`meta`). Nor does it serve a call that FlagGems answers with an
    argument, as `cat` of one tensor, where torch makes a new one. `on_call` gets the
    conditions that hold for every call, and `declined` the reason for every call that FlagGems does not take.

    The function gets the number of the tensor's device where the call means that device: FlagGems gives torch its
    number, and a device that is only a number is one of flagos.

    On a vendor whose devices have another type in torch, the shim checks the conditions within which the function was
    verified, and writes results into arguments. Elsewhere the function gets flagos tensors, and both are done here:
    it serves no call that breaks a condition of `only`. `refuses` is asked of every call that comes from Python, and
    says why it is not to be served.
    """

    def __init__(self, overload: str, given: Callable[..., Any] | None = None) -> None:
        self._overload = overload
        self._function = given
        self._given_device = False
        self.on_call: Callable[[envelope.Holding], None] | None = None
        self.declined: Callable[[str], None] | None = None
        self.only: list[str] = []
        self.refuses: Callable[[Args, Kwargs], str | None] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.on_call is not None or self.only:
            held = envelope.holding(self._overload, args, kwargs, self.only)
            if broken := [name for name in self.only if name not in held]:
                # Not told: it is not known here what the function makes of it.
                raise UnsupportedError(f"it was verified only where {envelope.meaning(broken[0])}")
            if self.on_call is not None:
                self.on_call(held)
        if self.refuses is not None and (reason := self.refuses(args, kwargs)) is not None:
            raise self._declines(reason)
        writes = _mutates(self._overload)
        if writes or self._overload in meta.READING:
            refused = meta.refusal(self._overload, args, kwargs)
            if refused is not None:
                raise self._declines(refused)
        serve = self._found()
        if self._given_device and kwargs.get("device") is None:
            kwargs["device"] = args[0].device
        try:
            result = serve(*args, **kwargs)
        except NotImplementedError as error:
            raise self._declines(f"FlagGems raises {message(error)}") from error
        except _REFUSALS as error:
            if writes:
                raise
            raise self._declines(f"FlagGems raises {message(error)}") from error
        if not writes and _is_of(result, args):
            raise self._declines("FlagGems returns an argument")
        if writes and not _takes_native_tensors():
            op = python_kernels.require_operator(f"aten::{self._overload}")
            return in_arguments(op, result, args, kwargs)
        return result

    def _declines(self, reason: str) -> UnsupportedError:
        if self.declined is not None:
            self.declined(reason)
        return UnsupportedError(reason)

    def _found(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = package.function(self._overload)
            self._given_device = _takes_a_device(self._overload)
        return self._function

    def __repr__(self) -> str:
        return f"<FlagGems' {self._overload}>"


@cache
def _mutates(overload: str) -> bool:
    return bool(python_kernels.require_operator(f"aten::{overload}")._schema.is_mutable)


def _takes_native_tensors() -> bool:
    """Whether FlagGems' functions get tensors of a type that torch has beside flagos."""
    return native().device_type is not None


def in_arguments(op: torch._ops.OpOverload, result: Any, args: Args, kwargs: Kwargs) -> Any:
    """The written arguments, with the results in them, where they are the operator's results."""
    schema = op._schema
    targets = [
        args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if not targets or len(targets) != len(schema.returns):
        return result
    results = result if isinstance(result, (list, tuple)) else (result,)
    for target, made in zip(targets, results, strict=False):
        if (
            isinstance(made, torch.Tensor)
            and isinstance(target, torch.Tensor)
            and made is not target
        ):
            target.resize_(made.shape).copy_(made)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _is_of(result: Any, args: Args) -> bool:
    """Whether a result is an argument, or one of the tensors in an argument that is a list."""
    results = result if isinstance(result, (list, tuple)) else (result,)
    return any(
        one is leaf
        for one in results
        if isinstance(one, torch.Tensor)
        for value in args
        for leaf in (value if isinstance(value, (list, tuple)) else (value,))
    )


def message(error: Exception) -> str:
    """The type and the message of an error, in one line."""
    return f"{type(error).__name__}: " + " ".join(str(error).split())[:200]


def without_memory(error: Exception) -> bool:
    """Whether memory was not to be had: of the pool, or for the device's own needs, such as a context."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "out of memory" in str(error)
    )


def registered() -> dict[str, str]:
    """The overloads that are registered, with the names of FlagGems' functions."""
    return dict(_registered)


def missing() -> str:
    """The reason why there is no implementation."""
    return _missing


def function(overload: str) -> Function:
    """The kernel of a registered overload, to be verified: from now on it serves what nothing has verified.

    So it does what was not measured to be faster.
    """
    found = _functions[overload]
    found.refuses = None
    python_kernels.only_faster(f"aten::{overload}", f"{BACKEND}.{_registered[overload]}", None)
    return found


def limit(overload: str, only: Iterable[str]) -> None:
    """From the next call on, make an overload serve only calls that keep these conditions, instead of the table's.

    For verification: what `explain` says stays as it is.
    """
    if not _takes_native_tensors():
        _functions[overload].only = envelope.ordered(only)
        return
    impl_id = f"{BACKEND}.{_registered[overload]}"
    python_kernels.limit(f"aten::{overload}", impl_id, envelope.ordered(only))


def conditions(overload: str) -> frozenset[str]:
    """The conditions within which an overload is verified and serves, sizes apart."""
    return tables.only(overload) | {envelope.ORDINARY}


def usable(overload: str) -> bool:
    """Whether a route may name the overload."""
    return _unusable(overload) is None


def routed(overload: str) -> bool:
    """Whether a route may name the overload on a machine that has the device for it."""
    return _never_routed(overload) is None


def failed(overload: str) -> bool:
    """Whether the overload is known to be wrong on this chip."""
    known = tables.verdicts().get(overload)
    return known is not None and known["verdict"] == table_file.FAILED


def family(name: str) -> str:
    """The family of an overload: `add.Tensor`, `add_.Tensor` and `add.out` are one; `zeros` belongs to `zero_`."""
    return name.partition(".")[0].strip("_").removesuffix("s")


def register() -> None:
    """Register every overload with the core. Takes a few milliseconds where FlagGems is installed.

    Raises BrokenPack, a ValueError, where a pack is named that cannot be used, be it for want of FlagGems. Raises
    ImportError where the policy asks for a FlagGems that lacks what it requires.
    """
    global _missing
    found = package.folder()
    if found is None:
        _refuse_pack()
        return
    try:
        functions = package.overloads(found)
    except (OSError, ValueError, SyntaxError) as error:
        # Everything else works without FlagGems; `flagos doctor` and `enable_flaggems` tell the reason.
        _missing = str(error)
        _refuse_pack()
        return
    wanted = presence.policy()
    if wanted != presence.POLICIES[0] and (absent := presence.unmet()) is not None:
        raise ImportError(f"{presence.POLICY}={wanted}: {absent}", name=presence.NAME)
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    unknown = flaggems_versions.why_unknown(package.version())
    of_parts: dict[str, Callable[..., Any]] = {}
    for part, (whole, serves) in PARTS.items():
        if whole in functions and part not in functions:
            functions[part], of_parts[part] = serves.__name__, serves
    for overload, name in functions.items():
        op = f"aten::{overload}"
        try:
            known(op, "CPU")
        except RuntimeError:  # an overload of another version of torch
            continue
        function = _functions[overload] = Function(overload, of_parts.get(overload))
        unusable = _unusable(overload)
        only = envelope.ordered(tables.only(overload))
        if (of_sizes := tables.size_condition(overload)) is not None:
            only.append(of_sizes)
        _core.register_impl(
            op,
            f"{BACKEND}.{name}",
            "flagos",
            function,
            backend=BACKEND,
            unavailable_reason=unusable,
            on_request=None if unusable else tables.not_by_default(overload),
            only=[(_short(name), envelope.meaning(name)) for name in only]
            + _in_pack(overload)
            + _if_faster(overload),
            verdict=tables.description(overload),
        )
        _registered[overload] = name
        if unusable is None:
            by_shim = _takes_native_tensors()
            function.only = [] if by_shim else only
            if unknown is not None and not tables.verified_sizes(overload):
                function.refuses = partial(_not_verified, overload, unknown)
            given = tuple(only) if by_shim else ()
            if by_shim and (rows := _rows(overload)) is not None:
                python_kernels.pack(op, f"{BACKEND}.{name}", rows)
            if by_shim and (classes := tables.faster_classes(overload)) is not None:
                python_kernels.only_faster(op, f"{BACKEND}.{name}", classes)
            plan_listeners.registered(
                plan_listeners.Implementation(
                    op, f"{BACKEND}.{name}", function, BACKEND, native=by_shim, only=given
                )
            )
    plan_listeners.published()


def verify_on_use(admission: Callable[[str], Any]) -> None:
    """Admit calls of every overload that is right at some sizes first: what the policy `verify-on-use` means."""
    for overload, function in _functions.items():
        if usable(overload) and tables.verified_sizes(overload):
            function.refuses = admission(overload).refusal


def _not_verified(overload: str, unknown: str, args: Args, kwargs: Kwargs) -> str | None:
    """Why a kernel of a version that is not known is not to serve a call; None once another process has verified it."""
    _announce(unknown)
    asked_by = f"FlagGems' {overload}"
    try:
        admission = tools.load(_FIRST_CALLS, asked_by)(overload)
    except tools.MissingToolsError as error:
        return f"{unknown}: {error}"
    function = _functions[overload]
    function.refuses = admission.refusal
    return function.refuses(args, kwargs)


@cache
def _announce(unknown: str) -> None:
    """Warn once of kernels of a version that is not known."""
    warnings.warn(
        f"{unknown}: {tables.VERIFIED_FIRST}; `flagos verify` verifies all of its operators at once",
        RuntimeWarning,
        stacklevel=2,
    )


def _refuse_pack() -> None:
    """Raise BrokenPack if a pack is named: its operators are FlagGems', of which there are none."""
    if named := os.environ.get(pack_in_use.PACK):
        raise pack_file.BrokenPack(
            f"{named} is not used: a pack serves FlagGems' operators, and FlagGems cannot be used: {_missing}; "
            "install the FlagGems that the pack was made with, or unset FLAGOS_PACK"
        )


def _rows(overload: str) -> python_kernels.Packed | None:
    """The calls of the pack in use that it serves, as C++ takes them; None where it has none of the overload."""
    pack = pack_in_use.in_use()
    found = None if pack is None else pack.header["operators"].get(overload)
    if found is None:
        return None
    first, count = found["rows"]
    needed = pack_file.FASTER if tables.policy() == "auto" else 0
    return python_kernels.Packed((first, count, needed), pack_in_use.outside())


def _in_pack(overload: str) -> list[tuple[str, str]]:
    """The condition that `explain` shows if only the calls of the pack in use are served."""
    pack = pack_in_use.in_use()
    if pack is None or not pack_in_use.alone() or (rows := _rows(overload)) is None:
        return []
    calls = (
        rows.rows[1] if tables.policy() != "auto" else pack.header["operators"][overload]["faster"]
    )
    return [
        ("packed", f"its signature is one of {calls} of the pack {pack.path} ({pack.digest[:12]})")
    ]


def _if_faster(overload: str) -> list[tuple[str, str]]:
    """The condition that `explain` shows if only calls that were measured to be faster are served."""
    if not _takes_native_tensors() or (condition := tables.speed_condition(overload)) is None:
        return []
    return [("faster", condition)]


def _short(condition: str) -> str:
    """The name of a condition in the plan."""
    return sizes.PREFIX.strip() if condition.startswith(sizes.PREFIX) else condition


def _takes_a_device(overload: str) -> bool:
    """Whether the overload creates a tensor like its first argument, on a device that a call may name."""
    arguments = python_kernels.require_operator(f"aten::{overload}")._schema.arguments
    named = {argument.name for argument in arguments}
    return bool(arguments) and str(arguments[0].type) == "Tensor" and "device" in named


@cache
def why_unusable() -> str | None:
    """The reason why none of FlagGems' kernels can run in this process."""
    if importlib.util.find_spec("triton") is None:
        return "FlagGems needs Triton: pip install triton"
    if (absent := presence.unmet()) is not None:
        return absent
    if interpreted.wanted():
        if native().host_computes:
            return None
        return f"Triton's interpreter reads device memory on the host, which cannot read that of {native().vendor!r}"
    if native().triton_backend is None:
        return "FlagGems has kernels for GPUs, and none serves flagos here (TRITON_INTERPRET=1 interprets them)"
    return None


def _unusable(overload: str) -> str | None:
    return why_unusable() or _never_routed(overload)


def _never_routed(overload: str) -> str | None:
    if overload in _NOT_ROUTED:
        return "moving data between devices and layouts stays with the device"
    op = f"aten::{overload}"
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    # Backward operators with a kernel of their own (silu_backward) are composed only on devices without it.
    if has_kernel(op, "CompositeImplicitAutograd") and not has_kernel(op, "Autograd"):
        return (
            "torch derives its gradient from its parts, which one kernel for all of it would hide"
        )
    return None

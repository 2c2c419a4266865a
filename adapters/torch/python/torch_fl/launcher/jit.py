"""Triton's `JITFunction`: what its arguments are, and what its `run` did with them."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from flagos import _core
from torch_fl.calls import Args, Kwargs
from torch_fl.launcher import compiled
from torch_fl.launcher.interception import Interception
from torch_fl.launcher.reasons import Unsupported


def role(param: Any) -> str:
    """How Triton distinguishes the values of a parameter."""
    if param.is_constexpr:
        return "constant"
    return "class" if param.do_not_specialize else "traits"


def bind(function: Any, positional: int, names: tuple[str, ...]) -> list[str] | None:
    """The role of each argument, or `None` when they do not match the function's parameters."""
    params = function.params
    if positional > len(params):
        return None
    by_name = {param.name: param for param in params[positional:]}
    roles = [role(param) for param in params[:positional]]
    for name in names:
        if name in by_name:
            roles.append(role(by_name.pop(name)))
        elif name in ("grid", "warmup"):
            roles.append(name)
        elif name in function.arg_names:
            return None  # given twice
        else:
            roles.append("constant")  # an option of the compiler
    if any(param.default is inspect.Parameter.empty for param in by_name.values()):
        return None
    return roles


def sources(names: list[str], args: Args, given: tuple[str, ...]) -> dict[str, tuple[int, Any]]:
    """For each parameter that was given a value, the number of the argument."""
    found = {name: (index, None) for index, (name, _) in enumerate(zip(names, args, strict=False))}
    for index, name in enumerate(given, start=len(args)):
        found[name] = (index, None)
    return found


def kept(args: Args, kwargs: Kwargs) -> list[Any]:
    """The objects that keys compare by identity, which must therefore stay alive."""
    # A grid function may hold tensors, and no key knows it.
    values = [*args, *(value for name, value in kwargs.items() if name != "grid")]
    objects = [value for value in values if not hasattr(value, "data_ptr")]
    return objects + [value.dtype for value in values if hasattr(value, "data_ptr")]


def passed(kernel: Any, found: dict[str, tuple[int, Any]]) -> list[tuple[int, Any]]:
    """The sources of the parameters that a compiled kernel is passed."""
    return [found[name] for name, kind in compiled.signature(kernel).items() if kind != "constexpr"]


def _plan(
    function: Any,
    args: Args,
    kwargs: Kwargs,
    given: tuple[str, ...],
    kernel: Any,
) -> _core.LaunchPlan:
    if function.debug or kwargs.get("debug"):
        raise Unsupported("it is compiled for debugging")
    names = function.arg_names
    native = compiled.native(kernel)
    if list(kernel.src.signature) != names:
        raise Unsupported("its signature is not that of the function")
    found = sources(names, args, given)
    # As Triton's binder orders them: all parameters, with their defaults.
    every = [found.get(param.name, (-1, param.default)) for param in function.params]
    found = dict(zip(names, every, strict=True))
    globals_: list[tuple[dict[str, Any], str, Any]] = []
    for (name, _), (_, scope) in function.used_global_vals.items():
        if type(scope) is not dict or name not in scope:
            raise Unsupported(f"the global {name} is not found")
        globals_.append((scope, name, scope[name]))
    from triton.runtime import driver

    device = driver.active.get_current_device()
    caches = [function.device_caches, function.device_caches[device][0]]
    return _core.LaunchPlan(
        kernel=kernel,
        compiled=native,
        passed=passed(kernel, found),
        every=every,
        result=kernel,
        meta={name: value for name, (_, value) in found.items()},
        told=[(name, index) for name, (index, _) in found.items() if index >= 0],
        globals=globals_,
        caches=caches,
        kept=kept(args, kwargs),
    )


def _owner() -> Any:
    return sys.modules["triton.runtime.jit"].JITFunction


def _texts(owner: Any) -> dict[str, Any]:
    jit = sys.modules["triton.runtime.jit"]
    return {
        "JITFunction.run": owner.run,
        "JITFunction.create_binder": owner.create_binder,
        "JITFunction._pack_args": owner._pack_args,
        "JITFunction._do_compile": owner._do_compile,
        "create_function_from_signature": jit.create_function_from_signature,
        "compute_cache_key": jit.compute_cache_key,
    }


CLASS = Interception(
    "triton.runtime.JITFunction", "jit", _owner, _texts, bind, _plan, lambda function: function
)


def register() -> None:
    """Called when Triton is imported."""
    CLASS.install()

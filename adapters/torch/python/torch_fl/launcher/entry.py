"""FlagGems' `LibEntry`: what its arguments are, and what its `run` did with them.

A hit in `LibEntry`'s cache launches the kernel that was found when its key was first seen, whatever hooks or
globals have become since; so does the native path. Since 5.3 each run of some kernels also asks whether the user has
`flag_gems.flagtune` search more configurations, and empties the cache if so: the native path has it asked when the user
says so.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from flagos import _core
from torch_fl.calls import Args, Kwargs
from torch_fl.launcher import compiled, jit
from torch_fl.launcher.interception import Interception
from torch_fl.launcher.reasons import Unsupported

_searched: weakref.WeakSet[Any] = weakref.WeakSet()
"""Entries with a native plan whose kernels `flag_gems.flagtune` may have search more configurations."""

_GRID = -1
"""The number that stands for the call's grid among the arguments of a grid function."""


def _role(entry: Any, index: int) -> str:
    if index in entry.specialize_indices:
        return "value"
    return "class" if index in entry.do_not_specialize_indices else "constant"


def bind(entry: Any, positional: int, names: tuple[str, ...]) -> list[str] | None:
    """The role of each argument, or `None` when they do not match the function's parameters."""
    params = entry.jit_function.params
    if positional > len(params):
        return None
    index_of = {param.name: param.num for param in params}
    roles = [_role(entry, index) for index in range(positional)]
    for name in names:
        if name in ("grid", "warmup"):
            roles.append(name)
        elif name not in index_of:
            roles.append("constant")  # an option of the compiler
        elif index_of[name] < positional:
            return None  # given twice
        else:
            roles.append(_role(entry, index_of[name]))
    return roles


def _plan(
    entry: Any,
    args: Args,
    kwargs: Kwargs,
    given: tuple[str, ...],
    result: Any,
) -> _core.LaunchPlan:
    from flag_gems.runtime import torch_device_fn

    cache = entry.kernel_cache[torch_device_fn.current_device()]
    bound, key = _bound(entry, args, kwargs)
    if key not in cache:
        raise Unsupported("FlagGems keeps no kernel for this call")
    if _is_searched(entry):
        _searched.add(entry)
    kernel, constexprs, tuned, heuristic, hooks = cache[key]
    if hooks:
        raise Unsupported("its configuration has a pre-hook")
    if result[0] is not kernel:
        raise Unsupported("FlagGems launched another kernel than the one it keeps")
    native = compiled.native(kernel)
    names = list(entry.signature.parameters)
    if list(kernel.src.signature) != names:
        raise Unsupported("its signature is not that of the function")
    found = jit.sources([param.name for param in entry.jit_function.params], args, given)
    every = []
    for name in names:
        if name in bound:
            every.append(found.get(name, (-1, bound[name])))
        else:
            constants = next(one for one in (tuned, heuristic, constexprs) if name in one)
            every.append((-1, constants[name]))
    # The arguments of a grid function: arguments by name, everything given by name, then the constants.
    meta: dict[str, Any] = dict.fromkeys(entry.arg_names[: len(args)])
    meta |= {**kwargs, **constexprs}
    told = [(name, found[name][0]) for name in meta if name in found and name not in constexprs]
    told = [(name, _GRID if name == "grid" else index) for name, index in told]
    if "grid" in meta and "grid" not in found and "grid" not in constexprs:
        told.append(("grid", _GRID))
    for name, _ in told:
        meta[name] = None
    return _core.LaunchPlan(
        kernel=kernel,
        compiled=native,
        passed=jit.passed(kernel, dict(zip(names, every, strict=True))),
        every=every,
        result=(kernel, constexprs),
        meta=meta,
        told=told,
        globals=[],
        caches=[cache],
        kept=jit.kept(args, kwargs),
    )


def _bound(entry: Any, args: Args, kwargs: Kwargs) -> tuple[dict[str, Any], Any]:
    """The values `LibEntry.run` collects, by name, and the key it makes of them."""
    params = entry.jit_function.params
    names = list(entry.signature.parameters)
    values = dict(zip(names, args, strict=False))
    for param in params[len(args) :]:
        if param.name in kwargs:
            values[param.name] = kwargs[param.name]
        elif param.has_default:
            values[param.name] = param.default
    groups: dict[str, list[Any]] = {"value": [], "class": [], "constant": []}
    for param in params:
        if param.name in values:
            groups[_role(entry, param.num)].append(values[param.name])
    if _is_searched(entry):
        dtypes = sys.modules["flag_gems.utils.libentry"]._infer_tensor_dtypes(args)
        groups["constant"].append(("flagtune_dtypes", *map(str, dtypes)))
    return values, entry.key(groups["value"], groups["class"], groups["constant"])


def _is_searched(entry: Any) -> bool:
    return getattr(entry, "_has_flagtune_tuner", False)


def _owner() -> Any:
    # By name: the package has a function called like the module.
    return sys.modules["flag_gems.utils.libentry"].LibEntry


def _texts(owner: Any) -> dict[str, Any]:
    return {
        "LibEntry.__init__": owner.__init__,
        "LibEntry.key": owner.key,
        "LibEntry.run": owner.run,
    }


CLASS = Interception(
    "flag_gems.utils.libentry.LibEntry",
    "entry",
    _owner,
    _texts,
    bind,
    _plan,
    lambda entry: entry.jit_function,
)


def register() -> None:
    """Called when FlagGems is imported."""
    CLASS.install()
    runtime: Any = sys.modules["flag_gems.runtime"]
    if CLASS.installed() and hasattr(runtime, "flagtune"):
        runtime.flagtune = _applied_at_once(runtime.flagtune)


def _applied_at_once(flagtune: Callable[..., None]) -> Callable[..., None]:
    """Let entries learn of a search when the user asks for one: their caches shrink, and native plans are forgotten."""

    @functools.wraps(flagtune)
    def ask(*args: Any, **kwargs: Any) -> None:
        flagtune(*args, **kwargs)
        for entry in tuple(_searched):
            entry._apply_flagtune()

    return ask

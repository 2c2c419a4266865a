"""Which configuration of a tuned kernel of FlagGems runs: the one that was verified, unless the user asks for another.

FlagGems measures the configurations of a kernel at its first call of a kind, which takes minutes for products, and
any may win. In a program the first one runs that the chip takes, which is the one that `flagos verify` ran on recorded
calls, or the one that a tuning file names. `FLAGOS_TUNING=on` has FlagGems measure them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torch_fl.flaggems import pack_file

VARIABLE = "FLAGOS_TUNING"
OFF, ON = "off", "on"

Named = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Configurations as their arguments, by the kernel's name and the key that it is tuned by."""

_lock = threading.Lock()
_counted: Counter[str] = Counter()
_allowed = 0
_of_pack: Named = {}


@dataclass(frozen=True)
class Statistics:
    """How the tuned kernels of this process got their configurations, by kernel and key.

    tuned: measured here, which took `seconds`. named: by a tuning file or a pack. verified: the others.
    """

    tuned: int
    seconds: float
    named: int
    verified: int


@dataclass
class _Chosen:
    """The configurations that one tuner was given, by key."""

    by_key: dict[str, Any] = field(default_factory=dict)


def policy() -> str:
    """The value of FLAGOS_TUNING: `off`, `on` or the path of a file. Raises ValueError for no such file."""
    value = os.environ.get(VARIABLE) or OFF
    if value in (OFF, ON) or Path(value).is_file():
        return value
    raise ValueError(
        f"{VARIABLE}={value}: expected `{OFF}`, `{ON}`, or a tuning file or a pack, and there is no such file"
    )


def description() -> str:
    """How configurations are chosen, in words."""
    value = policy()
    if value == ON:
        return f"its kernels are tuned at first use ({VARIABLE}=on)"
    return f"tuned as {value} says" if value != OFF else "in the configuration that was verified"


def statistics() -> Statistics:
    """Counts since the start of the process."""
    with _lock:
        counted = Counter(_counted)
    return Statistics(
        counted["tuned"], round(counted["microseconds"] / 1e6, 3), counted["named"], counted["verified"]
    )  # fmt: skip


@cache
def named() -> Named:
    """The configurations of the file that FLAGOS_TUNING names, or else of the pack in use."""
    value = policy()
    if value not in (OFF, ON):
        return read(Path(value))
    return _of_pack


def take(of_pack: Named) -> None:
    """Have the configurations that a pack names be those of kernels that no file names."""
    global _of_pack
    _of_pack = of_pack
    named.cache_clear()


def read(path: Path) -> Named:
    """The configurations that a tuning file or a pack names. Raises ValueError for another file."""
    if pack_file.is_pack(path):
        found = pack_file.read(path).header["configurations"]
    else:
        try:
            found = json.loads(path.read_text())["configurations"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is no tuning file ({type(error).__name__}: {error}): expected a pack, or JSON with the "
                "`configurations` that `flagos pack --show PACK --json` prints"
            ) from error
    if not isinstance(found, dict) or not all(
        isinstance(config, dict)
        for keys in found.values()
        for config in (keys.values() if isinstance(keys, dict) else [None])
    ):
        raise ValueError(
            f"{path} is no tuning file: `configurations` has no configuration by kernel and key"
        )
    return found


@contextmanager
def tuning() -> Iterator[None]:
    """Have FlagGems measure configurations meanwhile, in all threads."""
    global _allowed
    with _lock:
        _allowed += 1
    try:
        yield
    finally:
        with _lock:
            _allowed -= 1


def install() -> None:
    """Choose the configurations of FlagGems' kernels, which were imported, from now on."""
    for owner in owners():
        if not hasattr(owner.run, "of_flaggems"):
            owner.run = _run_of(owner.run)


def owners() -> list[Any]:
    """Triton's class of tuned kernels, and those of its subclasses that run them in a way of their own.

    None where nothing has imported the class: no kernel that was imported is tuned.
    """
    autotuner = sys.modules.get("triton.runtime.autotuner")
    if autotuner is None:
        return []
    found, seen = [autotuner.Autotuner], [autotuner.Autotuner]
    while seen:
        seen = [one for owner in seen for one in owner.__subclasses__()]
        found += seen
    return [owner for owner in found if "run" in vars(owner)]


def name(tuner: Any) -> str:
    """The name of a tuner's kernel in tables."""
    return f"{tuner.base_fn.__module__}.{tuner.base_fn.__name__}"


def key(tuner: Any, kwargs: Mapping[str, Any]) -> str:
    """The key by which the tuner distinguishes calls; the positional arguments are `tuner.nargs`."""
    given = {**tuner.nargs, **kwargs}
    given = {name: given[name] for name in tuner.arg_names if name in given}
    if hasattr(tuner, "get_key"):
        return repr(tuner.get_key(given))
    dtypes = (str(value.dtype) for value in given.values() if hasattr(value, "dtype"))
    return repr((*(given[name] for name in tuner.keys if name in given), *dtypes))


def launch(tuner: Any, config: Any, args: Any, kwargs: Any) -> Any:
    """Run a tuner's kernel in one configuration."""
    tuner.best_config = config
    given = config.all_kwargs()
    if config.pre_hook is not None:
        config.pre_hook({**tuner.nargs, **kwargs, **given})
    return tuner.fn.run(*args, **kwargs, **given)


def unfit() -> tuple[type[BaseException], ...]:
    """The exceptions by which a launch refuses a configuration that the chip does not support."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, CompileTimeAssertionFailure, PTXASError


def _is_flaggems(tuner: Any) -> bool:
    # The user's own kernels are tuned as Triton does.
    return hasattr(tuner, "get_key") or str(tuner.base_fn.__module__).startswith("flag_gems")


def _run_of(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        if len(tuner.configs) < 2 or not _is_flaggems(tuner):
            return original(tuner, *args, **kwargs)
        if _allowed or policy() == ON:
            return _tuned(original, tuner, args, kwargs)
        return _chosen(tuner, args, kwargs)

    run.of_flaggems = True  # type: ignore[attr-defined]
    return run


def _tuned(original: Callable[..., Any], tuner: Any, args: Any, kwargs: Any) -> Any:
    before = getattr(tuner, "configs_timings", None)
    result = original(tuner, *args, **kwargs)
    if getattr(tuner, "configs_timings", None) is not before:
        with _lock:
            _counted["tuned"] += 1
            _counted["microseconds"] += int(1e6 * getattr(tuner, "bench_time", 0))
    return result


def _chosen(tuner: Any, args: Any, kwargs: Any) -> Any:
    known = vars(tuner).setdefault("_flagos_chosen", _Chosen()).by_key
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        of_call = key(tuner, kwargs)
        if of_call in known:
            return launch(tuner, known[of_call], args, kwargs)
        candidates, by = _candidates(tuner, of_call, kwargs)
        for number, config in enumerate(candidates):
            try:
                result = launch(tuner, config, args, kwargs)
            except unfit():
                if number + 1 == len(candidates):
                    raise
                continue
            known[of_call] = config
            with _lock:
                _counted[by if number == 0 else "verified"] += 1
            return result
    finally:
        tuner.nargs = None


def _candidates(tuner: Any, of_call: str, kwargs: Any) -> tuple[list[Any], str]:
    """The configurations to try, in order, and what counts the first one."""
    fitting = list(tuner.prune_configs(kwargs))
    wanted = named().get(name(tuner), {}).get(of_call)
    found = [config for config in tuner.configs if wanted is not None and plain(config) == wanted]
    return [*found[:1], *fitting], "named" if found else "verified"


def plain(config: Any) -> dict[str, Any]:
    """A configuration's arguments, as JSON has them."""
    found: dict[str, Any] = json.loads(json.dumps(config.all_kwargs(), default=str))
    return found

"""The installed FlagGems: where it is, what it offers, and its functions once one is needed."""

from __future__ import annotations

import ast
import importlib
import math
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import torch

from torch_fl import flaggems_versions
from torch_fl.flaggems import configurations, interpreted
from torch_fl.flaggems.presence import NAME, SOURCE
from torch_fl.flaggems.presence import folder as folder
from torch_fl.native import native

_TABLE = "_FULL_CONFIG"
_DATABASE = "FLAGGEMS_DB_URL"
_VENDOR = "GEMS_VENDOR"
# What is tuned in one thread (autograd's) is read in another, each by a connection of its own.
_IN_MEMORY = "sqlite:///file:flagos?mode=memory&cache=shared&uri=true"

_lock = threading.RLock()
_functions: dict[str, Callable[..., Any]] | None = None


@cache
def version() -> str:
    """Its version; of a checkout the release that it is to the last byte, or else `source-DIGEST`."""
    here = folder()
    if here is None:
        return "none"
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        return flaggems_versions.of_checkout(here)
    # FlagGems names its own folder in the variable when it is imported, and processes inherit that.
    if Path(str(installed.locate_file(NAME))).resolve() == here.resolve():
        return str(installed.version)
    return flaggems_versions.of_checkout(here)


def overloads(package: Path) -> dict[str, str]:
    """Reads the package's overloads, such as `add.Tensor`, and the names of its functions from its sources.

    Raises ValueError when the text has no table of the kind that is known.
    """
    path = package / "__init__.py"
    for statement in ast.parse(path.read_text(), str(path)).body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not (isinstance(target, ast.Name) and target.id == _TABLE):
            continue
        assert isinstance(statement, ast.Assign)
        if isinstance(statement.value, (ast.Tuple, ast.List)):
            return dict(_entry(row) for row in statement.value.elts)
    raise ValueError(f"{path} has no table {_TABLE}: this version of FlagGems is not known")


def _entry(row: ast.expr) -> tuple[str, str]:
    if isinstance(row, (ast.Tuple, ast.List)) and len(row.elts) >= 2:
        name, function = row.elts[:2]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return name.value, ast.unparse(function)
    raise ValueError(f"{_TABLE} of FlagGems has an entry of an unknown form: {ast.unparse(row)}")


def function(overload: str) -> Callable[..., Any]:
    """FlagGems' function for an overload. Imports FlagGems. Raises UnsupportedError when it leaves it out."""
    functions = _functions or _load()
    if overload not in functions:
        from flagos import UnsupportedError

        raise UnsupportedError(
            f"FlagGems {version()} leaves {overload} out with this version of torch"
        )
    return functions[overload]


def load() -> None:
    """Import FlagGems."""
    _load()


def inner(name: str) -> Callable[..., Any]:
    """A function of FlagGems that serves no overload by itself. Imports FlagGems.

    Raises UnsupportedError when it has no such function.
    """
    if _functions is None:
        _load()
    found = getattr(importlib.import_module(f"{NAME}.ops"), name, None)
    if found is None:
        from flagos import UnsupportedError

        raise UnsupportedError(f"FlagGems {version()} has no {name}")
    return cast(Callable[..., Any], found)


def load_before_forking() -> None:
    """Import FlagGems such that processes forked afterwards may use the device.

    Its locks are not shared between processes, and what it tunes is not kept: one database would be.
    """
    if _functions is not None:
        return
    os.environ.setdefault(_DATABASE, _IN_MEMORY)
    with asking_another_process(), mock.patch.object(multiprocessing, "Lock", threading.Lock):
        _load()


@contextmanager
def tuned_among(few: int) -> Iterator[None]:
    """Kernels that are tuned meanwhile measure the first `few` of their configurations that fit the chip.

    Of hundreds, as FlagGems' products have, each takes seconds to compile.
    """
    from triton.runtime.autotuner import Autotuner

    measure = Autotuner._bench

    def among(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        # A tuner has the arguments of the call that it tunes for, in an object of that call's own.
        call, measured = vars(tuner).get("_flagos_tuned", (None, 0))
        if call is not tuner.nargs:
            measured = 0
        if measured >= few:
            return [math.inf] * 3
        found: list[float] = measure(tuner, *args, config=config, **meta)
        tuner._flagos_tuned = tuner.nargs, measured + math.isfinite(found[0])
        return found

    with mock.patch.object(Autotuner, "_bench", among), configurations.tuning():
        yield


@contextmanager
def asking_another_process() -> Iterator[None]:
    """Has another process answer questions about the device in the block, so that this one can still fork.

    Raises RuntimeError when that process fails.
    """
    with ExitStack() as stack:
        for name, answer in ({} if interpreted.wanted() else _answers()).items():
            answered = partial(_answered, answer)
            stack.enter_context(mock.patch.object(_device_module(), name, answered))
        # torch's database asks numba whether it has a GPU, and that opens the driver.
        if "numba" not in sys.modules:
            sys.modules["numba"] = cast(Any, None)
            stack.callback(sys.modules.pop, "numba")
        yield


def _device_module() -> Any:
    """torch's module for the native device, which FlagGems asks."""
    return torch.get_device_module(native().device_type or "flagos")


def _answered(answer: Any, *_: Any, **__: Any) -> Any:
    return answer


@cache
def _answers() -> dict[str, Any]:
    """Asks torch about the native device in another process. Raises RuntimeError if that fails."""
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            properties = _device_module().get_device_properties(0)
            named = [name for name in dir(properties) if not name.startswith("_")]
            values = {name: getattr(properties, name) for name in named}
            plain = {n: v for n, v in values.items() if isinstance(v, (bool, int, str))}
            send.send((_device_module().device_count(), plain))
        finally:
            os._exit(0)
    send.close()
    try:
        count, plain = receive.recv()
    except EOFError:
        raise RuntimeError("the device does not answer: see `flagos doctor`") from None
    finally:
        os.waitpid(child, 0)
        receive.close()
    return {
        "is_available": True,
        "device_count": count,
        "current_device": 0,
        "get_device_name": plain["name"],
        "get_device_capability": (plain["major"], plain["minor"]),
        "get_device_properties": SimpleNamespace(**plain),
    }


def _load() -> dict[str, Callable[..., Any]]:
    global _functions
    with _lock:
        if _functions is None:
            version()  # kept: FlagGems itself sets the variable that tells a checkout
            source = os.environ.get(SOURCE)
            if source:
                sys.path.insert(0, str(Path(source).parent))
            if interpreted.wanted():
                interpreted.prepare()
            elif native().device_type != native().vendor and (vendor := native().flaggems_vendor):
                # Otherwise it looks for the vendors' own plugins of torch, and imports torch_npu, or takes torch's cuda
                # for NVIDIA's.
                os.environ.setdefault(_VENDOR, vendor)
            try:
                package = importlib.import_module(NAME)
            except ImportError as error:
                reason = (
                    f"FlagGems {version()}, which a route asks for, cannot be imported: {error}"
                )
                raise ImportError(f"{reason}; install what is missing", name=error.name) from error
            configurations.install()
            _functions = {row[0]: row[1] for row in getattr(package, _TABLE) if _offered(*row[2:])}
    return _functions


def _offered(condition: Callable[[], Any] | None = None, *_: Any) -> bool:
    """Whether FlagGems offers a row of its table with this torch: it names a condition, then keys of the dispatcher."""
    return condition is None or bool(condition())

"""`FLAGOS_FLAGGEMS=verify-on-use`: a call of a size that was not verified is tried in another process first.

What was found is kept in `$XDG_CACHE_HOME/flagos` for the next program.
"""

from __future__ import annotations

import atexit
import json
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from torch_fl.flaggems import implementations, package, sizes, tables
from torch_fl.flaggems.arguments import argument_names
from torch_fl_tools.flaggems import kept
from torch_fl_tools.flaggems.checker import Checker
from torch_fl_tools.records import facts

Judge = Callable[[facts.Call], tuple[str | None, str]]


@dataclass(frozen=True)
class _Finding:
    """What was found of one overload."""

    sizes: dict[str, dict[str, str]] = field(default_factory=dict)  # as tables have them
    refused: dict[str, str] = field(default_factory=dict)  # classes of sizes, with the reason


_lock = threading.Lock()
_checker = Checker()
atexit.register(_checker.close)


def path() -> Path:
    """Where findings are kept."""
    return kept.folder() / tables.file_name("on-use", tables.chip(), package.version())


def install() -> None:
    """Have calls of every overload that is right at some sizes be admitted first: what the policy `ON_USE` means."""
    for overload in implementations.registered():
        if implementations.usable(overload) and tables.verified_sizes(overload):
            implementations.function(overload).refuses = Admission(overload).refusal


class Admission:
    """Whether calls of one overload are of a size that is verified, or was found to be right by another process."""

    def __init__(self, overload: str, judge: Judge = _checker.judge) -> None:
        self._overload = overload
        self._judge = judge
        self._verified = tables.verified_sizes(overload)
        self._refused: dict[str, str] = {}
        self._read = False

    def refusal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Why FlagGems must not serve a call; None where it may. May take a minute, once for a class of sizes."""
        classes = self._classes(args, kwargs)
        if sizes.holds(self._verified, classes):
            return None
        if torch.accelerator.is_available() and _capturing():
            return (
                "its sizes were not verified, and nothing can be verified while a graph is captured"
            )
        with _lock:
            if not self._read:
                self._take(_kept().get(self._overload, _Finding()))
                self._read = True
            if sizes.holds(self._verified, classes):
                return None
            name = sizes.condition(classes)
            if name not in self._refused:
                self._try(name, classes, args, kwargs)
            return self._refused.get(name)

    def _classes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> sizes.Classes:
        names = argument_names(self._overload)
        given = [*enumerate(args), *((names.index(name), value) for name, value in kwargs.items())]
        return sizes.of_shapes((place, _shapes(value)) for place, value in given)

    def _try(self, name: str, classes: sizes.Classes, args: Any, kwargs: Any) -> None:
        try:
            with torch.no_grad():
                call = facts.describe(f"aten::{self._overload}", args, kwargs)
                call = facts.with_ranges(call, args, kwargs)
        except facts.Unrecordable as error:
            self._refused[name] = (
                f"its sizes were not verified, and nothing like it can be tried: {error}"
            )
            return
        verdict, why = self._judge(call)
        if verdict == tables.STRICT:
            self._verified = sizes.union([self._verified, classes])
        else:
            self._refused[name] = f"tried at these sizes, it is {verdict or tables.UNTESTED}: {why}"
        if verdict is None:
            return  # there was no memory for it, or FlagGems takes no such call: another may be tried
        _keep(self._overload, self._verified, self._refused)

    def _take(self, found: _Finding) -> None:
        known = sizes.from_table(self._overload, found.sizes)
        self._verified = sizes.union([self._verified, known])
        self._refused |= found.refused


def _shapes(value: Any) -> list[tuple[int, ...]]:
    if isinstance(value, torch.Tensor):
        return [tuple(value.shape)]
    return (
        [shape for one in value for shape in _shapes(one)]
        if isinstance(value, (list, tuple))
        else []
    )


def _capturing() -> bool:
    return bool(torch.get_device_module("flagos").is_current_stream_capturing())


def _kept() -> dict[str, _Finding]:
    """What was found before, by overload; nothing where there is no file, or one of other versions."""
    try:
        found = json.loads(path().read_text())
        if found["torch"] != torch.__version__:
            return {}
        overloads = {}
        for overload, one in found["overloads"].items():
            sizes.from_table(overload, one["sizes"])
            if not isinstance(one["refused"], dict):
                raise TypeError("`refused` is no object")
            overloads[overload] = _Finding(one["sizes"], one["refused"])
        return overloads
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        told = f"{path()} is not used ({type(error).__name__}: {error}); remove it"
        warnings.warn(told, RuntimeWarning, stacklevel=2)
        return {}


def _keep(overload: str, verified: sizes.Classes, refused: dict[str, str]) -> None:
    try:
        with kept.alone(path().stem):
            overloads = _kept()
            before = overloads.get(overload, _Finding())
            known = sizes.from_table(overload, before.sizes)
            overloads[overload] = _Finding(
                sizes.to_table(overload, sizes.union([known, verified])),
                {**before.refused, **refused},
            )
            made = {
                "torch": torch.__version__,
                "flaggems": package.version(),
                "chip": tables.chip(),
            }
            every = {name: asdict(one) for name, one in overloads.items()}
            tables.write(path(), {**made, "overloads": every})
    except OSError as error:
        told = f"{path()} cannot be written ({error}): what was verified is not kept"
        warnings.warn(told, RuntimeWarning, stacklevel=2)

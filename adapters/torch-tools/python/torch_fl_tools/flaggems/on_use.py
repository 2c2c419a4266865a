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

from torch_fl import flaggems_versions
from torch_fl.calls import Args, Kwargs
from torch_fl.flaggems import envelope, package, sizes, table_file, tables
from torch_fl.flaggems.arguments import argument_names
from torch_fl_tools.flaggems import cache_folder
from torch_fl_tools.flaggems.checker import Checker
from torch_fl_tools.records import facts

Judge = Callable[[facts.Call], tuple[str | None, str]]


@dataclass(frozen=True)
class _Finding:
    """The findings about one overload."""

    sizes: dict[str, dict[str, str]] = field(default_factory=dict)  # as tables have them
    refused: dict[str, str] = field(default_factory=dict)  # classes of sizes, with the reason
    right: bool = False  # whether any call was


_lock = threading.Lock()
_checker = Checker()
atexit.register(_checker.close)


def path() -> Path:
    """The file of the findings."""
    return cache_folder.folder() / tables.file_name("on-use", tables.chip(), package.version())


class Admission:
    """Whether calls of one overload are of a size that is verified, or was found to be right by another process.

    With a `kind` it is about the calls of that kind alone (`FirstCalls`), none of which is verified beforehand.
    """

    def __init__(self, overload: str, judge: Judge = _checker.judge, kind: str = "") -> None:
        self._overload = overload
        self._name = f"{overload} {kind}".rstrip()
        self._judge = judge
        self._verified = {} if kind else tables.verified_sizes(overload)
        self._right = not kind  # whether any call was found to be right
        self._refused: dict[str, str] = {}
        self._read = False

    def refusal(self, args: Args, kwargs: Kwargs) -> str | None:
        """Why FlagGems must not serve a call; None where it may. May take a minute, once for a class of sizes."""
        classes = self._classes(args, kwargs)
        if self._admits(classes):
            return None
        if torch.accelerator.is_available() and _capturing():
            return (
                "its sizes were not verified, and nothing can be verified while a graph is captured"
            )
        with _lock:
            if not self._read:
                self._take(_load().get(self._name))
                self._read = True
            if self._admits(classes):
                return None
            name = sizes.condition(classes)
            if name not in self._refused:
                self._try(name, classes, args, kwargs)
            return self._refused.get(name)

    def _admits(self, classes: sizes.Classes) -> bool:
        return self._right and sizes.holds(self._verified, classes)

    def _classes(self, args: Args, kwargs: Kwargs) -> sizes.Classes:
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
        if verdict == table_file.STRICT:
            self._verified = sizes.union([self._verified, classes])
            self._right = True
        else:
            self._refused[name] = (
                f"tried at these sizes, it is {verdict or table_file.UNTESTED}: {why}"
            )
        if verdict is None:
            return  # there was no memory for it, or FlagGems takes no such call: another may be tried
        _keep(self._name, _Finding(self._to_table(), self._refused, self._right))

    def _to_table(self) -> dict[str, dict[str, str]]:
        return sizes.to_table(self._overload, self._verified)

    def _take(self, found: _Finding | None) -> None:
        if found is None:
            return
        known = sizes.from_table(self._overload, found.sizes)
        self._verified = sizes.union([self._verified, known])
        self._right = self._right or found.right
        self._refused |= found.refused


class FirstCalls:
    """Admission of calls of an overload of which nothing was verified: each kind of call by itself.

    A kind is the dtypes and the conditions of the tensors (`envelope.CONDITIONS`) and the other arguments: integers up
    to 8 and words as they are, larger integers by magnitude, other numbers by their types.
    """

    def __init__(self, overload: str, judge: Judge = _checker.judge) -> None:
        self._overload = overload
        self._judge = judge
        self._of_kind: dict[str, Admission] = {}

    def refusal(self, args: Args, kwargs: Kwargs) -> str | None:
        """Why FlagGems must not serve a call; None where it may. May take a minute, once for a kind and its sizes."""
        held = ",".join(sorted(envelope.holding(self._overload, args, kwargs)))
        given = [*map(_kind, args), *(f"{name}={_kind(kwargs[name])}" for name in sorted(kwargs))]
        kind = f"({', '.join(given)}) {held}"
        if kind not in self._of_kind:
            self._of_kind[kind] = Admission(self._overload, self._judge, kind)
        return self._of_kind[kind].refusal(args, kwargs)


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}[{value.dim()}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_kind, value))}]"
    if isinstance(value, int) and abs(value) > 8:
        return f"int~{sizes.size_class(abs(value))}"
    if isinstance(value, (float, complex, torch.Generator)):
        return type(value).__name__
    return str(value)


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


def _load() -> dict[str, _Finding]:
    """Loads earlier findings by overload; returns none without a file, or for one of other versions."""
    try:
        found = json.loads(path().read_text())
        if (found["torch"], found["compiler"]) != (torch.__version__, flaggems_versions.compiler()):
            return {}
        overloads = {}
        for name, one in found["overloads"].items():
            sizes.from_table(name.partition(" ")[0], one["sizes"])
            if not isinstance(one["refused"], dict):
                raise TypeError("`refused` is no object")
            overloads[name] = _Finding(one["sizes"], one["refused"], bool(one["right"]))
        return overloads
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"{path()} is not used ({type(error).__name__}: {error}); remove it"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return {}


def _keep(name: str, found: _Finding) -> None:
    try:
        with cache_folder.alone(path().stem):
            overloads = _load()
            before = overloads.get(name, _Finding())
            overload = name.partition(" ")[0]
            known = [sizes.from_table(overload, one.sizes) for one in (before, found)]
            overloads[name] = _Finding(
                sizes.to_table(overload, sizes.union(known)),
                {**before.refused, **found.refused},
                before.right or found.right,
            )
            table: table_file.Table = {
                "torch": torch.__version__,
                "flaggems": package.version(),
                "compiler": flaggems_versions.compiler(),
                "chip": tables.chip(),
                "overloads": {name: asdict(one) for name, one in overloads.items()},
            }
            table_file.write(path(), table)
    except OSError as error:
        message = f"{path()} cannot be written ({error}): what was verified is not kept"
        warnings.warn(message, RuntimeWarning, stacklevel=2)

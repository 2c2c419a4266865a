"""A task's score, by a function of the user's: `--score module:function`."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flagos.cli.output import CommandError
from flagos.messages import described
from torch_fl_tools.accuracy import outputs

Score = Callable[[dict[str, Any]], float]


def load(text: str) -> Score:
    """The function. Raises CommandError that says which part of `module:function` is wrong."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise CommandError(
            f"--score {text} names no function",
            "write module:function, such as --score task:accuracy",
        )
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the module has wrong
        raise CommandError(
            f"--score {text}: the module {module} cannot be imported: {described(error)}",
            "name a module of this folder or of the environment",
        ) from error
    finally:
        sys.path.remove(os.getcwd())
    function = getattr(found, name, None)
    if not callable(function):
        known = sorted(n for n, v in vars(found).items() if callable(v) and not n.startswith("_"))
        what = "is no function" if hasattr(found, name) else f"is not in the module {module}"
        raise CommandError(
            f"--score {text}: {name} {what}",
            f"it has: {', '.join(known)}" if known else "define it: def score(outputs): return 0.0",
        )
    score: Score = function
    return score


def of(function: Score, name: str, run: Path) -> float:
    """The score of a run. Raises CommandError if the function fails or returns no number."""
    try:
        value = function(outputs.named(run))
    except Exception as error:  # the user's function
        raise CommandError(
            f"--score {name} failed on the outputs in {run}: {described(error)}",
            "it gets a dict of lists: of each output's name the tensors of its calls",
        ) from error
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise CommandError(
            f"--score {name} returned {value!r}, which is no number", "return a float"
        ) from error
    if not math.isfinite(number):
        raise CommandError(f"--score {name} returned {number} for {run}", "return a finite number")
    return number

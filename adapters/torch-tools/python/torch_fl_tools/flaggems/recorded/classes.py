"""The classes of sizes (`torch_fl.flaggems.sizes`) of recorded calls."""

from __future__ import annotations

from typing import Any

from torch_fl.flaggems import sizes
from torch_fl.flaggems.arguments import argument_names
from torch_fl_tools.records.facts import Call, TensorFacts


def of(call: Call) -> sizes.Classes:
    """Return the classes of a recorded call."""
    places = {name: place for place, name in enumerate(argument_names(call.overload))}
    given = [*enumerate(call.args), *((places[n], value) for n, value in call.kwargs.items())]
    return sizes.of_shapes((place, _shapes(value)) for place, value in given)


def _shapes(value: Any) -> list[tuple[int, ...]]:
    if isinstance(value, TensorFacts):
        return [value.shape]
    return [shape for one in value for shape in _shapes(one)] if isinstance(value, tuple) else []

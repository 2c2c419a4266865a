"""Classes of sizes in which a kernel was verified.

A kernel that is right for a thousand elements may be wrong, or lose the device, for a million. Sizes are told apart by
magnitude: class 0 is below 4, and each class is four times as large as the one before. Of each tensor that is an
argument three sizes count: its elements, its columns (the last dimension) and its rows (all the others). A call is of a
verified size if all of these are, for each argument by itself. The shim evaluates the condition, by shifting bits
(`csrc/python_kernels/conditions.cc`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from torch_fl.flaggems.arguments import argument_names, tensor_places

Classes = dict[int, tuple[int, int, int]]
"""The classes of one call: those of elements, rows and columns as bits, by the place of the argument."""

PREFIX = "sizes "
_KINDS = ("elements", "rows", "columns")
SAMPLED = (1 << 6) - 1
"""The classes of the operator database's samples: below 4096."""


def size_class(size: int) -> int:
    """The class of one size."""
    return max(0, size.bit_length() - 1) // 2


def of_shapes(arguments: Iterable[tuple[int, list[tuple[int, ...]]]]) -> Classes:
    """The classes of a call whose arguments have tensors of these shapes, by their places."""
    found: Classes = {}
    for place, shapes in arguments:
        for shape in shapes:
            columns = shape[-1] if shape else 1
            elements = math.prod(shape)
            rows = elements // columns if columns else 0
            bits = (1 << size_class(size) for size in (elements, rows, columns))
            found[place] = _union(found.get(place, (0, 0, 0)), bits)
    return found


def _union(some: tuple[int, int, int], others: Iterable[int]) -> tuple[int, int, int]:
    a, b, c = (x | y for x, y in zip(some, others, strict=True))
    return a, b, c


def union(several: Iterable[Classes]) -> Classes:
    """The classes of several calls together."""
    found: Classes = {}
    for one in several:
        for place, bits in one.items():
            found[place] = _union(found.get(place, (0, 0, 0)), bits)
    return found


def holds(verified: Classes, one: Classes) -> bool:
    """Whether a call of the classes `one` is of a verified size."""
    return all(
        bits & ~known == 0
        for place, given in one.items()
        for bits, known in zip(given, verified.get(place, (0, 0, 0)), strict=True)
    )


def sampled(overload: str) -> Classes:
    """The classes of the database's samples, for every argument with tensors."""
    tensors = tensor_places(overload)
    return dict.fromkeys(tensors, (SAMPLED, SAMPLED, SAMPLED))


# ---- as tables and conditions have them


def to_table(overload: str, verified: Classes) -> dict[str, dict[str, str]]:
    """Ranges of sizes by the names of arguments: `{"self": {"elements": "0-4095", ...}}`."""
    names = argument_names(overload)
    return {
        names[place]: {kind: ranges(mask) for kind, mask in zip(_KINDS, bits, strict=True)}
        for place, bits in sorted(verified.items())
    }


def from_table(overload: str, ranges: Mapping[str, Mapping[str, str]]) -> Classes:
    """The classes that a table tells. Raises ValueError for what it does not tell."""
    names = argument_names(overload)
    found: Classes = {}
    for name, kinds in ranges.items():
        if name not in names or set(kinds) != set(_KINDS):
            raise ValueError(f"{overload} has no argument {name!r} of {', '.join(_KINDS)}")
        a, b, c = (_mask(kinds[kind]) for kind in _KINDS)
        found[names.index(name)] = a, b, c
    return found


def ranges(mask: int) -> str:
    """The sizes of some classes, as text: `0-255, 4096-65535`."""
    found: list[list[int]] = []
    for number in range(mask.bit_length()):
        if not mask >> number & 1:
            continue
        low = 4**number if number else 0
        if found and found[-1][1] + 1 == low:
            found[-1][1] = 4 ** (number + 1) - 1
        else:
            found.append([low, 4 ** (number + 1) - 1])
    return ", ".join(f"{low}-{high}" for low, high in found) or "none"


def _mask(text: str) -> int:
    mask = 0
    for one in text.split(", ") if text != "none" else ():
        known = re.fullmatch(r"(\d+)-(\d+)", one)
        if known is None:
            raise ValueError(f"{one!r} is no range of sizes, such as 0-4095")
        low, high = map(int, known.groups())
        for number in range(size_class(low), size_class(high) + 1):
            mask |= 1 << number
    return mask


def condition(verified: Classes) -> str:
    """The classes as a condition of the shim."""
    words = (f"{place}:{a:x}/{b:x}/{c:x}" for place, (a, b, c) in sorted(verified.items()))
    return PREFIX + " ".join(words)


def meaning(name: str) -> str:
    """Describes a condition that `condition` made."""
    lines = []
    for word in name.removeprefix(PREFIX).split():
        place, _, bits = word.partition(":")
        kinds = zip(_KINDS, (int(x, 16) for x in bits.split("/")), strict=True)
        lines.append(
            f"argument {place} has " + ", ".join(f"{ranges(m)} {kind}" for kind, m in kinds)
        )
    return "sizes are of verified classes: " + "; ".join(lines or ["none"])

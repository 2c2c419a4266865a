"""Draws from the live tensors of a program, and literals for the text of a step."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = {"float": FLOATS, "int": INTEGERS, "complex": COMPLEX, "bool": (torch.bool,)}
_KINDS = ("float", "float", "float", "float", "int", "int", "bool", "complex")
_NUMBERS = (0, 1, -1, 2, 3, 0.5, -2.5, 1e-3, 7, True, -0.0)
_SPECIAL = (math.nan, math.inf, -math.inf, 1e30, -1e30, 255, 2**31, -(2**63), 1j)
_MOST_ELEMENTS = 3000
_MOST_TENSORS = 16

Wanted = Callable[[torch.Tensor], bool]


class Draw:
    """Random choices for one step, over the names of the first device."""

    def __init__(
        self,
        rng: random.Random,
        names: dict[str, Any],
        number: int,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.rng = rng
        self.note = note  # told of what is tried, which may end the process
        self.names = names
        self._number = number * 10
        self.live = [
            name
            for name, value in names.items()
            if name[0] == "t"
            and name[1:].isdigit()
            and isinstance(value, torch.Tensor)
            and not value.is_nested
        ]
        self.host = [name for name in names if name[0] == "h" and name[1:].isdigit()]

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def new(self, prefix: str = "t") -> str:
        """A name nobody has."""
        self._number += 1
        return f"{prefix}{self._number}"

    def value(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self.names[name]
        return tensor

    def tensor(self, *kinds: str, dims: Sequence[int] = (), where: Wanted | None = None) -> str:
        """A live tensor of these kinds and dimensions, mostly; any where there is none."""

        def fits(name: str) -> bool:
            tensor = self.value(name)
            with contextlib.suppress(RuntimeError):  # a view that may not be looked at
                return (
                    tensor.layout == torch.strided
                    and (not kinds or kind_of(tensor) in kinds)
                    and (not dims or tensor.dim() in dims)
                    and (where is None or where(tensor))
                )
            return False

        candidates = [] if self.chance(0.03) else [name for name in self.live if fits(name)]
        if not candidates:
            candidates = [n for n in self.live if self.value(n).layout == torch.strided]
        return self.rng.choice(candidates or self.live or ["t0"])

    def like(self, name: str) -> str:
        """A tensor that broadcasts with another, mostly."""
        shape = self.shape_of(name)

        def fits(tensor: torch.Tensor) -> bool:
            pairs = zip(reversed(tensor.shape), reversed(shape), strict=False)
            return all(a == b or 1 in (a, b) for a, b in pairs)

        return self.tensor(where=fits)

    def shape_of(self, name: str) -> tuple[int, ...]:
        value = self.names.get(name)
        return tuple(value.shape) if isinstance(value, torch.Tensor) else ()

    def dim(self, name: str) -> int:
        dims = max(1, len(self.shape_of(name)))
        return (
            self.rng.randrange(-dims - 1, dims + 2)
            if self.chance(0.06)
            else self.rng.randrange(-dims, dims)
        )

    def size(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 16))

    def shape(self, least: int = 0, most: int = 5) -> list[int]:
        dims = self.rng.choice([d for d in (0, 1, 1, 2, 2, 2, 3, 3, 4, 5) if least <= d <= most])
        shape = [self.size() for _ in range(dims)]
        return shape if math.prod(shape) <= _MOST_ELEMENTS else [min(size, 4) for size in shape]

    def number(self) -> str:
        return literal(self.rng.choice(_SPECIAL if self.chance(0.08) else _NUMBERS))

    def integer(self) -> int:
        if self.chance(0.02):
            return self.rng.choice((-(2**63), 2**63 - 1, -100, 1000))
        return self.rng.choice((-2, -1, 0, 0, 1, 1, 2, 2, 3, 4, 5))

    def dtype(self, *kinds: str) -> torch.dtype:
        return self.rng.choice(DTYPES[self.rng.choice(kinds or _KINDS)])

    def slice(self) -> str:
        start, stop, step = (
            self.rng.choice((0, 1, -2, None)),
            self.rng.choice((None, 3, -1)),
            self.rng.choice((None, 1, 2)),
        )
        return ":".join("" if part is None else str(part) for part in (start, stop, step))

    def index(self, name: str) -> str:
        """An index expression, for the brackets after a tensor."""
        shape = self.shape_of(name)
        parts = [self._index_part(size) for size in shape[: self.rng.randrange(len(shape) + 1)]]
        if self.chance(0.15):
            parts.insert(self.rng.randrange(len(parts) + 1), self.rng.choice(("...", "None")))
        if self.chance(0.08):
            return self.tensor("bool", "int")
        return ", ".join(parts) or "..."

    def _index_part(self, size: int) -> str:
        high = size + (self.chance(0.05))
        numbers = [
            self.rng.randrange(-size, high) if size else 0
            for _ in range(self.rng.choice((1, 2, 3)))
        ]
        return self.rng.choice(
            (
                self.slice(),
                self.slice(),
                str(numbers[0]),
                f"torch.tensor({numbers}, device=dev)",
                f"torch.tensor([{numbers}], device=dev)",
                f"torch.tensor({numbers})",
                str(numbers),
                f"torch.arange({size}, device=dev) % 2 == 0",
            )
        )

    def too_much(self) -> list[str]:
        """Names to forget: large tensors, and the oldest beyond what is compared fast."""
        large = [n for n in self.live if _elements(self.value(n)) > _MOST_ELEMENTS]
        others = [n for n in self.live if n not in large]
        return large + others[: max(0, len(others) - _MOST_TENSORS)]


def _elements(tensor: torch.Tensor) -> int:
    with contextlib.suppress(NotImplementedError, RuntimeError):  # not every tensor has a storage
        return max(tensor.numel(), tensor.untyped_storage().nbytes() // 16)
    return tensor.numel()


def kind_of(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "bool"
    if tensor.dtype.is_complex:
        return "complex"
    return "float" if tensor.dtype.is_floating_point else "int"


def literal(value: Any) -> str:
    """The text of a value: that of a float without a finite one, too."""
    return repr(value)  # inf and nan are names of the preamble

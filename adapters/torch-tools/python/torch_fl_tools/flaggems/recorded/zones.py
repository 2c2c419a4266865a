"""Memory with red zones: tensors inside larger allocations, every other byte of which is known.

A kernel that writes beside its tensors changes such a byte. One that reads beside them, or reads what nobody wrote,
gives other results when the bytes are others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

FILLERS = (0xFF, 0x7B)
"""Bytes that fill memory: of the first every fraction is NaN, of the second it is large (1e36 in float32)."""

_BEFORE_AND_AFTER = 1 << 20  # bytes


@dataclass
class _Zone:
    """One allocation, and the tensors in it. `wrong` names it."""

    base: torch.Tensor
    name: str
    inside: list[torch.Tensor] = field(default_factory=list)
    before: torch.Tensor | None = None  # its bytes, where no byte may change


class Zones:
    """Allocations on one device, filled with one byte, with `around` bytes before and after what tensors need."""

    def __init__(self, device: torch.device, filler: int, around: int = _BEFORE_AND_AFTER) -> None:
        self.device = device
        self._filler = filler
        self._around = around
        self._zones: dict[int, _Zone] = {}

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in one of the allocations."""
        return tensor.untyped_storage()._cdata in self._zones

    def memory(self, nbytes: int, name: str) -> torch.Tensor:
        """A new allocation for `nbytes` bytes of tensors, of which messages speak by `name`."""
        size = 2 * self._around + nbytes
        base = torch.full((size,), self._filler, dtype=torch.uint8, device=self.device)
        self._zones[base.untyped_storage()._cdata] = _Zone(base, name)
        return base

    def view(
        self,
        base: torch.Tensor,
        place: int,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> torch.Tensor:
        """A tensor in an allocation, `place` bytes after the red zone."""
        first = self._around + place
        made = torch.empty(0, dtype=dtype, device=self.device)
        made.set_(base.untyped_storage(), first // dtype.itemsize, shape, strides)  # type: ignore[call-overload, unused-ignore]
        self._zones[base.untyped_storage()._cdata].inside.append(made)
        return made

    def like(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A tensor of the same type, shape and strides in an allocation of its own."""
        base = self.memory(_extent(tensor), name)
        return self.view(base, 0, tensor.dtype, tuple(tensor.shape), tensor.stride())

    def keep(self, base: torch.Tensor) -> None:
        """From now on no byte of the allocation may change, not even its tensors'."""
        self._zones[base.untyped_storage()._cdata].before = base.clone()

    def damage(self) -> str | None:
        """Describes the first forbidden write; None without one."""
        for zone in self._zones.values():
            if zone.before is not None and not torch.equal(zone.base, zone.before):
                where = int((zone.base != zone.before).nonzero()[0])
                return f"it writes to {zone.name}, which is only read ({_place(zone, where)})"
            changed = zone.base != self._filler
            for tensor in zone.inside:
                _bytes_of(tensor, changed).fill_(False)
            if bool(changed.any()):
                where = int(changed.nonzero()[0])
                return f"it writes outside {zone.name}: {_place(zone, where)}"
        return None


def _extent(tensor: torch.Tensor) -> int:
    """The bytes from the first element to the end of the last."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize


def _bytes_of(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The elements of a mask, with one for each byte of the allocation, that are the tensor's."""
    size = tensor.itemsize
    # Strides of 0 name the same bytes again.
    own = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s != 0 or n == 0]
    shape = [*(n for n, _ in own), size]
    strides = [*(s * size for _, s in own), 1]
    return mask.as_strided(shape, strides, tensor.storage_offset() * size)


def _place(zone: _Zone, byte: int) -> str:
    """Describes the place of a byte."""
    inside = [tensor for tensor in zone.inside if tensor.numel()]
    if not inside:
        return "of which no element exists"
    first = min(tensor.storage_offset() * tensor.itemsize for tensor in inside)
    end = max(tensor.storage_offset() * tensor.itemsize + _extent(tensor) for tensor in inside)
    if byte < first:
        return f"{first - byte} bytes before its first element"
    if byte >= end:
        return f"{byte - end} bytes after its last element"
    return f"at byte {byte - first} of {end - first}"


class Fenced(TorchDispatchMode):
    """Context manager in which tensors that operators make have red zones, and memory that nobody wrote is filled."""

    def __init__(self, zones: Zones) -> None:
        super().__init__()
        self._zones = zones
        self._made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {
            leaf.untyped_storage()._cdata
            for leaf in pytree.tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        }
        empty = "empty" in func._schema.name

        def moved(made: torch.Tensor) -> torch.Tensor:
            return self._moved(made, given, empty)

        return pytree.tree_map_only(torch.Tensor, moved, func(*args, **kwargs))

    def _moved(self, made: torch.Tensor, given: set[int], empty: bool) -> torch.Tensor:
        if (
            made.device.type != self._zones.device.type
            or made.layout != torch.strided
            or self._zones.knows(made)
            or made.untyped_storage()._cdata in given
        ):
            return made
        self._made += 1
        fenced = self._zones.like(
            made, f"the memory number {self._made} that it allocates, {_described(made)}"
        )
        return fenced if empty else fenced.copy_(made)


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"

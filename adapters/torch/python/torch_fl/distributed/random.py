"""Random operators of DTensor on a device whose generator has no offset, such as the host's.

torch gives every shard its own part of one random stream by the offset of a Philox generator. The CPU's
Mersenne Twister has none. Here each rank draws the numbers of the whole tensor instead and takes its shard of
them: a sharded result is a part of what one device draws, and the generators of all ranks stay equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from torch_fl.calls import Kwargs

DEVICE = "flagos"

PHILOX_STATE_BYTES = 16
"""The size of the state that torch's tracker reads: a seed and an offset, 64 bits each."""


def register() -> None:
    """Complete torch's tracker of generators. Idempotent."""
    from torch.distributed.tensor._random import OffsetBasedRNGTracker

    theirs = OffsetBasedRNGTracker._distribute_region
    if theirs.__module__ != __name__:
        ours = _for_its_generator(theirs)
        setattr(OffsetBasedRNGTracker, "_distribute_region", ours)  # noqa: B010


def _for_its_generator(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def _distribute_region(
        tracker: Any, spec: Any, generator: torch.Generator | None = None
    ) -> Any:
        if tracker._device.type != DEVICE or _has_offset(generator):
            return theirs(tracker, spec, generator)
        return _whole_tensor_region(tracker, spec, generator)

    return _distribute_region


def _has_offset(generator: torch.Generator | None) -> bool:
    if generator is None:
        state = torch.flagos.get_rng_state()  # type: ignore[attr-defined]
    else:
        state = generator.get_state()
    return bool(state.numel() == PHILOX_STATE_BYTES)


@contextlib.contextmanager
def _whole_tensor_region(
    tracker: Any, spec: Any, generator: torch.Generator | None
) -> Iterator[None]:
    with _WholeTensor(spec, generator, whole=tracker.distribute_region_enabled):
        yield


class _WholeTensor(TorchDispatchMode):
    """Runs a random operator, called with a shard of the tensor that `spec` describes, on the whole tensor."""

    def __init__(self, spec: Any, generator: torch.Generator | None, *, whole: bool) -> None:
        super().__init__()
        self._spec = spec
        self._generator = generator
        self._whole = whole and any(_is_sharding(placement) for placement in spec.placements)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if self._generator is not None:
            kwargs["generator"] = self._generator
        if not self._whole:
            return func(*args, **kwargs)
        first, *others = args
        elements = _elements_of_shard(self._spec)
        if not isinstance(first, torch.Tensor):  # a factory, called with the sizes of the shard
            _check_sizes(func, first, elements)
            return _shard_of(func(list(self._spec.shape), *others, **kwargs), elements)
        _check_sizes(func, first.shape, elements)
        result = func(_whole_of(first, self._spec, elements), *others, **kwargs)
        if func._schema.is_mutable:
            return first.copy_(_shard_of(result, elements))
        return tree_map_only(torch.Tensor, lambda whole: _shard_of(whole, elements), result)


def _is_sharding(placement: Any) -> bool:
    # Whatever is not whole on each rank: a placement that cannot split fails below, and is not taken for a whole one.
    return not (placement.is_replicate() or placement.is_partial())


def _elements_of_shard(spec: Any) -> torch.Tensor:
    """The positions of this rank's elements in the whole tensor, in the shape of the shard."""
    elements = torch.arange(spec.shape.numel(), device="cpu").view(spec.shape)
    for dimension, (placement, coordinate) in enumerate(
        zip(spec.placements, spec.mesh.get_coordinate(), strict=True)
    ):
        if _is_sharding(placement):
            shards, _ = placement._split_tensor(
                elements, spec.mesh.size(dimension), with_padding=False, contiguous=False
            )
            elements = shards[coordinate]
    return elements


def _check_sizes(func: Any, sizes: Any, elements: torch.Tensor) -> None:
    if list(sizes) != list(elements.shape):
        raise NotImplementedError(
            f"{func} on a DTensor: a shard of sizes {list(sizes)} was given, but its placements make"
            f" {list(elements.shape)}"
        )


def _whole_of(shard: torch.Tensor, spec: Any, elements: torch.Tensor) -> torch.Tensor:
    """A tensor of all sizes and strides of `spec` with the values of the shard, and zeros elsewhere."""
    strides = spec.stride
    if 0 in strides:  # an expanded tensor
        whole = shard.new_zeros(spec.shape)
    else:
        whole = shard.new_empty_strided(spec.shape, strides).zero_()
    where = torch.unravel_index(elements.to(shard.device), spec.shape)
    return whole.index_put_(where, shard)


def _shard_of(whole: torch.Tensor, elements: torch.Tensor) -> torch.Tensor:
    return whole[torch.unravel_index(elements.to(whole.device), whole.shape)]

"""Calls that FlagGems must serve, and whose results must be the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

import flagos
from torch_fl.aten import routing


def count(overload: str) -> int:
    """How many calls of an overload its implementation took, those it declined left out."""
    counted = routing.counters().get(f"aten::{overload}", {"calls": 0, "fallbacks": 0})
    return counted["calls"] - counted["fallbacks"]


@contextmanager
def by_flaggems(*overloads: str, selector: str = "flaggems") -> Iterator[None]:
    """Route the overloads to FlagGems, and check that it served each at least once."""
    before = {overload: count(overload) for overload in overloads}
    with flagos.route({f"aten::{overload}": selector for overload in overloads}):
        for overload in overloads:
            winner = routing.explain(overload).data["winner"]
            assert selector.removeprefix("impl:") in winner, f"{winner} would serve {overload}"
        yield
        unserved = [overload for overload in overloads if count(overload) == before[overload]]
    assert not unserved, f"not served by {selector}: {', '.join(unserved)}"


def on(device: str, value: Any) -> Any:
    """A nest of tensors on a device, in memory of their own, with the offsets and strides they have."""

    def moved(x: torch.Tensor) -> torch.Tensor:
        storage = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())
        copy = storage.clone().to(device).untyped_storage()
        made = torch.empty(0, dtype=x.dtype, device=device)
        return made.set_(copy, x.storage_offset(), x.shape, x.stride())

    return pytree.tree_map_only(torch.Tensor, moved, value)


def assert_same(actual: Any, expected: Any, **tolerance: float) -> None:
    """The same tensors within torch's tolerances (1.3e-6 relative and 1e-5 absolute for float32), equal otherwise."""
    ours, theirs = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if not isinstance(other, torch.Tensor):
            continue
        assert one.device.type == "flagos"
        torch.testing.assert_close(one.cpu(), other, equal_nan=True, **tolerance)


def compare(
    overload: str, call: Callable[..., Any], *args: Any, selector: str = "flaggems"
) -> None:
    """Check `call(*args)` on flagos, served by FlagGems, against the CPU; arguments it writes as well."""
    theirs, ours = on("cpu", args), on("flagos", args)
    expected = call(*theirs)
    with by_flaggems(overload, selector=selector):
        actual = call(*ours)
    assert_same([actual, list(ours)], [expected, list(theirs)])

"""The next step of a program, drawn from a seed and from what the steps so far have made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from .draw import Draw
from .program import Step
from .schemas import any_operator
from .steps import (
    Kind,
    autograd,
    creation,
    layouts,
    operators,
    programs,
    storages,
    turns,
    views,
    writes,
)

# Each kind of step, and how often it is drawn.
KINDS: dict[Kind, int] = {
    any_operator: 90,
    creation.dense: 6,
    creation.filled: 3,
    creation.special: 2,
    creation.strided: 4,
    creation.alike: 3,
    creation.random: 3,
    views.view: 9,
    views.function_view: 4,
    views.several: 3,
    views.format: 3,
    writes.unary: 4,
    writes.binary: 7,
    writes.inplace: 8,
    writes.write_index: 5,
    writes.indexed: 6,
    operators.reduction: 5,
    operators.product: 5,
    operators.network: 6,
    operators.sorting: 4,
    operators.fourier: 2,
    operators.linear_algebra: 3,
    autograd.backward: 7,
    autograd.double_backward: 2,
    autograd.hooks: 3,
    autograd.function: 3,
    autograd.checkpointed: 2,
    autograd.flags: 6,
    autograd.inplace_graph: 4,
    storages.storage: 4,
    storages.set_: 4,
    storages.between: 6,
    storages.serialized: 3,
    layouts.sparse: 3,
    layouts.sparse_built: 1,
    layouts.nested: 2,
    programs.foreach: 5,
    programs.optimizer: 1,
    programs.transform: 2,
    programs.mode: 4,
    programs.thread: 1,
    programs.stream: 1,
    programs.module: 2,
}
# Those of a program in turns, where most calls come again.
TURN_KINDS: dict[Kind, int] = {
    turns.changes: 10,
    turns.depends: 2,
    turns.arrives: 3,
    turns.leaves: 3,
    turns.grows: 2,
    turns.trains: 10,
    any_operator: 8,
    creation.filled: 3,
    views.view: 6,
    writes.unary: 10,
    writes.binary: 14,
    writes.inplace: 12,
    writes.write_index: 2,
    writes.indexed: 3,
    operators.reduction: 8,
    operators.product: 8,
    operators.network: 6,
    autograd.backward: 6,
    autograd.hooks: 2,
    autograd.function: 2,
    autograd.checkpointed: 2,
    autograd.inplace_graph: 2,
    storages.storage: 1,
    storages.set_: 1,
    storages.between: 1,
    programs.foreach: 8,
    programs.optimizer: 1,
    programs.mode: 3,
    programs.thread: 1,
    programs.stream: 1,
    programs.module: 2,
}
_FIRST = (creation.dense, creation.dense, creation.strided, creation.special, creation.filled)


def generator(
    seed: int,
    note: Callable[[str], None] = lambda text: None,
    kinds: dict[Kind, int] = KINDS,
) -> Callable[[dict[str, Any]], Step | None]:
    """A function that gives the next step from the names of the CPU's side, and None in the end.

    ``note`` is told of what is tried on the CPU to find a step.
    """
    rng = random.Random(seed)
    length = rng.randrange(20, 61)
    number = 0

    def next_step(names: dict[str, Any]) -> Step | None:
        nonlocal number
        number += 1
        if number > length:
            return None
        draw = Draw(rng, names, number, note)
        surplus = draw.too_much()
        if surplus:
            return Step("del", f"del {', '.join(surplus)}", number)
        first = number <= 6
        kind = rng.choice(_FIRST) if first else rng.choices(list(kinds), list(kinds.values()))[0]
        drawn = kind(draw)
        name, text = (kind.__name__, drawn) if isinstance(drawn, str) else drawn
        return Step(name, text, number)

    return next_step


def replay(steps: list[Step]) -> Callable[[dict[str, Any]], Step | None]:
    """A function that gives these steps, one after the other."""
    waiting = iter(steps)
    return lambda names: next(waiting, None)

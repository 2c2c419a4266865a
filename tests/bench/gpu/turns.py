"""Turns of programs of several ranks on the same devices: each waits while another makes its steps.

All programs start at once, so that a slow start costs one start. From then on one program at a time has the devices,
for a block of steps. A round has a block of every program, and each round begins with another one. Files in a folder
say which blocks are done.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

VARIABLE = "TRAINERS_TURNS"
PREFIX = "RESULT "
_POLL_S = 0.0005
T = TypeVar("T")


@dataclass(frozen=True)
class Turns:
    """The order of the programs' blocks."""

    folder: str
    sides: tuple[str, ...]
    side: str
    block: int

    def variables(self) -> dict[str, str]:
        """What a program finds its turns by."""
        return {VARIABLE: json.dumps(asdict(self))}

    def order(self, round_: int) -> tuple[str, ...]:
        """The sides in the order of a round: what warms up with time favours none."""
        first = round_ % len(self.sides)
        return self.sides[first:] + self.sides[:first]

    def before(self, round_: int) -> tuple[int, str] | None:
        """The round and the side whose block comes before this program's; None for the very first."""
        order = self.order(round_)
        place = order.index(self.side)
        if place:
            return round_, order[place - 1]
        return (round_ - 1, self.order(round_ - 1)[-1]) if round_ else None

    def wait(self, round_: int, ranks: int) -> None:
        """Until the block before this one is done in all ranks."""
        earlier = self.before(round_)
        if earlier is not None:
            for rank in range(ranks):
                while not self._mark(*earlier, rank).exists():
                    time.sleep(_POLL_S)

    def done(self, round_: int, rank: int) -> None:
        """Tells the others that this rank has made its block."""
        self._mark(round_, self.side, rank).touch()

    def _mark(self, round_: int, side: str, rank: int) -> Path:
        return Path(self.folder) / f"{round_}.{side}.{rank}"


def mine() -> Turns:
    """The turns of this program, which `variables` gave it."""
    given = json.loads(os.environ[VARIABLE])
    return Turns(**{**given, "sides": tuple(given["sides"])})


class Recorder:
    """Makes a rank's steps in its turns, and keeps their losses and times."""

    def __init__(self, synchronize: Callable[[], object]) -> None:
        self._turns = mine()
        self._rank, self._ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._synchronize = synchronize
        self._losses: list[float] = []
        self._seconds: list[float] = []

    def step(self, call: Callable[[], T], loss: Callable[[T], float]) -> T:
        """Makes one step. Returns what it returns."""
        round_, place = divmod(len(self._losses), self._turns.block)
        if place == 0:
            self._turns.wait(round_, self._ranks)
        self._synchronize()
        begun = time.perf_counter()
        result = call()
        self._synchronize()
        self._seconds.append(time.perf_counter() - begun)
        self._losses.append(loss(result))
        if place == self._turns.block - 1:
            self._turns.done(round_, self._rank)
        return result

    def report(self, peak: int) -> None:
        """Prints the losses, the median time of each round's steps but its first, and the peak; rank 0 alone."""
        if self._rank == 0:
            block = self._turns.block
            rounds = [self._seconds[n : n + block] for n in range(0, len(self._seconds), block)]
            found = {
                "losses": self._losses,
                "seconds": [median(steps[1:] or steps) for steps in rounds],
                "peak": peak,
            }
            print(PREFIX + json.dumps(found), flush=True)


def reported(output: str) -> dict[str, object] | None:
    """What `report` printed into an output; None if it did not."""
    for line in reversed(output.splitlines()):
        if PREFIX in line:
            with suppress(json.JSONDecodeError):
                found: dict[str, object] = json.loads(line.partition(PREFIX)[2])
                return found
    return None

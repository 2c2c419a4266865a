"""Random generators for requests with a seed, on devices whose generators have no offset.

vLLM's first model runner draws for a request also where its prompt is not at its end, throws that draw away, and takes
it back by the generator's offset (``set_offset(get_offset() - 4)``), as CUDA's generators count. Those of the CPU,
which serve flagos' host vendor and others, have a state alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_DRAWN = 4  # the offset of CUDA's generators after one draw


class StepGenerator(torch.Generator):
    """A generator whose offset counts from the beginning of a step: `begin_step` keeps the state there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.begin_step()

    def manual_seed(self, seed: int) -> torch.Generator:
        """As torch's; a step begins here."""
        super().manual_seed(seed)
        self.begin_step()
        return self

    def begin_step(self) -> None:
        """Saves the state, to which later draws can be rolled back."""
        self._begun = self.get_state()

    def get_offset(self) -> int:
        """4 if something was drawn in this step, else 0."""
        return 0 if torch.equal(self._begun, self.get_state()) else _DRAWN

    def set_offset(self, offset: int) -> torch.Generator:
        """Takes back what was drawn in this step, for an offset of at most 0. Raises ValueError for any other."""
        if offset > 0:
            raise ValueError(
                f"offset {offset}: this generator can go back to the step's beginning alone, 0"
            )
        self.set_state(self._begun)
        return self


@cache
def class_of_device() -> type[torch.Generator]:
    """torch's own class where generators have an offset, else `StepGenerator`."""
    try:
        torch.Generator(device="flagos").set_offset(_DRAWN)
    except RuntimeError:
        return StepGenerator
    return torch.Generator


def begin_step(runner: Any) -> None:
    """Begins a step for the requests with a seed of vLLM's first model runner."""
    if class_of_device() is StepGenerator:
        for generator in runner.input_batch.generators.values():
            generator.begin_step()

"""Parts that `flagos demo` and its subjects share. Importing this module is free, as importing `demo` is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

PROMPT = b"The pilot "


class DemoError(Exception):
    """The demonstration cannot run here; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Two runs with equal settings differ only in the device."""

    steps: int
    seed: int
    new_tokens: int
    text: bytes


class Subject(Protocol):
    """The model that is trained and writes."""

    unit: str  # of text: what losses are per
    learning_rate: float
    writes_first: bool  # before it is trained
    samples: bool  # draws each token, and does not take the likeliest
    prompt: list[int]

    def model(self) -> Any:
        """The model on the CPU, the same each time."""

    def perturb(self, model: Any) -> None:
        """Change one weight by a tenth of a percent. Only for proving that the comparison notices."""

    def batches(self, settings: Settings) -> list[Tensor]:
        """The training samples, on the CPU: int64 [samples, tokens] for each step."""

    def text(self, tokens: Sequence[int]) -> str:
        """The tokens as text."""

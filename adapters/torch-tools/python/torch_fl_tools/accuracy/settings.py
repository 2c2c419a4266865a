"""What the processes of a run are told: the part `accuracy` of a run's description (`bisect.trial`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """How outputs are kept, and how native kernels differ from what they usually do."""

    tensor_bytes: int = 16 << 20  # a larger tensor is kept in a reduced form
    run_bytes: int = 512 << 20  # so is every tensor once a process has kept as much
    calls: int = 10_000  # calls of one output; later ones are left out
    only: tuple[str, ...] = ()  # patterns of the names of outputs; none: all
    rounding: int | None = None  # the seed of other roundings
    flags: tuple[tuple[str, bool], ...] = ()  # of torch.backends, by their names

    def as_dict(self) -> dict[str, Any]:
        """For a run's description."""
        return asdict(self)

    @classmethod
    def read(cls, told: dict[str, Any]) -> Settings:
        """The settings in a run's description. Raises TypeError for what is none."""
        flags = tuple((str(name), bool(value)) for name, value in told["flags"])
        return cls(**{**told, "only": tuple(told["only"]), "flags": flags})

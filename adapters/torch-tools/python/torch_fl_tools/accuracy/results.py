"""What `flagos accuracy` finds, as it is written and printed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from torch_fl_tools.bisect import findings

#: The measures, in the order in which they are printed.
MEASURES = {
    "relative": "relative error",
    "largest": "largest error, of the rms",
    "scalar": "relative error of a number",
    "other": "other integers, share",
    "margin": "margin of other tokens, of the rms",
    "kl_mean": "logit KL, mean",
    "kl_p99": "logit KL, p99",
    "kl_max": "logit KL, max",
    "perplexity": "perplexity, relative",
    "score": "task score",
}


@dataclass(frozen=True)
class Place:
    """An output of one call."""

    output: str
    call: int
    process: str = "0.0"  # rank and number

    def __str__(self) -> str:
        rank, _, number = self.process.partition(".")
        who = "" if self.process == "0.0" else f" of rank {rank}, process {number}"
        return f"{self.output}, call {self.call}{who}"


@dataclass(frozen=True)
class Measured:
    """One measure of an output in two runs."""

    measure: str  # a key of MEASURES
    value: float
    place: Place
    floor: float  # what the result's own dtype cannot tell apart


@dataclass(frozen=True)
class Judged:
    """A measure beside what native kernels do among themselves."""

    measure: str
    value: float
    noise: float
    limit: float
    place: Place

    @property
    def ratio(self) -> float:
        """The value in units of the limit: above 1 it is beyond."""
        if self.value == 0.0:
            return 0.0
        return self.value / self.limit if self.limit else float("inf")

    @property
    def beyond(self) -> bool:
        """Whether it is more than the limit."""
        return self.value > self.limit

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "beyond": self.beyond}


@dataclass(frozen=True)
class Flaw:
    """What is wrong whatever the limits are: a shape, NaN, an output that is missing."""

    message: str
    place: Place | None = None

    def __str__(self) -> str:
        return self.message if self.place is None else f"{self.place}: {self.message}"


@dataclass
class Compared:
    """Two runs beside each other."""

    measured: list[Measured] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    outputs: int = 0  # compared
    apart: int = 0  # not compared, as the tokens before had gone apart
    tokens: int = 0  # positions of logits
    others: int = 0  # of these, with another most likely token
    equal: bool = True  # in every bit of what is kept
    nan: int = 0  # in both runs, at the same places

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Compared:
        """The fields of `as_dict`."""
        measured = [
            Measured(**{**one, "place": Place(**one["place"])}) for one in fields["measured"]
        ]
        flaws = [
            Flaw(one["message"], one["place"] and Place(**one["place"])) for one in fields["flaws"]
        ]
        return cls(**{**fields, "measured": measured, "flaws": flaws})

    def largest(self, measure: str) -> float:
        """The largest value of a measure."""
        return max((one.value for one in self.measured if one.measure == measure), default=0.0)


@dataclass(frozen=True)
class Noise:
    """A run of native kernels that differs from the first, and by how much."""

    run: str
    largest: dict[str, float]  # of each measure
    tokens_apart: int
    left_out: str | None = None  # why it does not count


@dataclass
class Result:
    """The result of the command."""

    verdict: str  # equal, within, beyond, fails, not deterministic
    message: str
    multiple: float
    judged: list[Judged] = field(default_factory=list)  # the worst of each measure
    beyond: list[Judged] = field(default_factory=list)  # the first of each output and measure
    flaws: list[str] = field(default_factory=list)
    noise: list[Noise] = field(default_factory=list)
    outputs: int = 0
    outputs_apart: int = 0
    tokens: int = 0
    tokens_other: int = 0
    nan: int = 0
    score: dict[str, float] | None = None  # native, routed
    operators: list[str] = field(default_factory=list)  # called by another route than native
    on_native: list[str] = field(
        default_factory=list
    )  # that stayed there: they draw random numbers
    search: findings.Result | None = None

    @property
    def passes(self) -> bool:
        """Whether the routes are as accurate as native kernels."""
        return self.verdict in ("equal", "within")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self),
            "judged": [one.as_dict() for one in self.judged],
            "beyond": [one.as_dict() for one in self.beyond],
            "search": None if self.search is None else self.search.as_dict(),
        }

"""The file that each process of a program leaves for `flagos report`: its format, and how it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:  # a file is read without torch
    from torch_fl.distributed import Gathered


class HostTime(TypedDict):
    """The time of an operator's calls on the host."""

    calls: int
    total_ns: int
    own_ns: int


class DeviceCalls(TypedDict):
    """The kernels of an operator on the device."""

    calls: int
    ns: int


class Candidate(TypedDict):
    """An implementation that the plan considered."""

    impl_id: str
    kind: str
    chosen: bool
    reason: str | None


class Served(TypedDict):
    """The calls of an operator by what served them."""

    served: dict[str, int]  # calls by implementation
    instead: int  # calls that the next implementation served in place of the chosen one
    fallbacks: int


class Operator(Served, total=False):
    """The calls of an operator, with times and reasons."""

    host: HostTime
    device: DeviceCalls
    followed: int  # calls that automatic graphs followed
    native: dict[str, int]  # calls that they did not, by reasons
    first_reason: str  # of a fallback
    reasons: dict[str, int]  # of fallbacks
    decided_by: str
    alternatives: list[Candidate]


class DeviceTime(TypedDict):
    """How long kernels were collected."""

    why_not: str | None
    seconds: float | None


class DeviceMemory(TypedDict):
    """The memory of one device: its size, the allocator's own peaks, and samples over time."""

    index: int
    name: str
    total: int
    peak_allocated: int
    peak_reserved: int
    points: list[tuple[float, int, int]]  # seconds, allocated and reserved bytes


class Speed(TypedDict):
    """The medians of the ratios that `flagos tune` measured on this chip, on the host and on the device."""

    chip: str
    ratios: dict[str, dict[str, float]]


class _Process(TypedDict):
    pid: int
    argv: list[str]
    rank: str | None
    started: float
    ended: bool
    lock: str
    operators: dict[str, Operator]


class ProcessFile(_Process, total=False):
    """The whole file. A process that has called no operator yet has only the fields that are required."""

    vendor: str
    torch: str
    flagos: str
    seconds: float
    error: str | None
    gathered: list[Gathered]
    device_time: DeviceTime
    memory: list[DeviceMemory]
    speed: Speed
    graphs: dict[str, int]  # counts of automatic graphs
    queued: int  # parts of calls that a second thread handed to the library
    problems: list[str]


def read(path: Path) -> ProcessFile:
    """The file of a process. Raises ValueError for another one, with the missing field."""
    found: ProcessFile = json.loads(path.read_text())
    for name in _Process.__annotations__:
        if name not in found:
            raise ValueError(f"{path} has no field `{name}`: it is no file of `flagos report`")
    return found

"""Combines the files of the processes into the report that `--json` prints and that the page shows."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flagos.processes.ending import signal_name
from torch_fl_tools.report import process_file
from torch_fl_tools.report.process_file import ProcessFile
from torch_fl_tools.report.program import Ended

UNROUTED = "in no route"
"""Names torch itself, which serves operators that the plan does not have by composition or by views."""


@dataclass(frozen=True)
class Alternative:
    """An implementation that the plan considered."""

    impl_id: str
    kind: str
    chosen: bool
    reason: str | None


@dataclass(frozen=True)
class Operator:
    """The calls of one operator in one process."""

    op: str
    routed: bool  # whether the plan has it
    calls: int
    served: dict[str, int]  # calls by implementation
    fallbacks: int
    reasons: dict[str, int]  # why calls fell back
    host_calls: int
    host_total_ns: int
    host_own_ns: int
    device_calls: int
    device_ns: int | None
    decided_by: str | None
    alternatives: list[Alternative]
    ratios: dict[str, float]  # of FlagGems' time to the native one, on the host and on the device
    followed: int  # calls that automatic graphs followed
    native: dict[str, int]  # calls that they did not while they were on, by reasons

    @property
    def has_alternatives(self) -> bool:
        """Whether the plan had a choice."""
        return len(self.alternatives) > 1

    @property
    def host_ns_per_call(self) -> float:
        """The mean of a call on the host."""
        return self.host_own_ns / self.host_calls if self.host_calls else 0

    @property
    def device_ns_per_call(self) -> float | None:
        """The mean of a call on the device; None where it was not measured."""
        return self.device_ns / self.device_calls if self.device_ns else None


@dataclass(frozen=True)
class Implementation:
    """The calls that one implementation served in one process."""

    name: str
    operators: int
    calls: int
    host_own_ns: int
    device_ns: int


@dataclass(frozen=True)
class Gathered:
    """A reduction that a library of collectives lacks, for which the data of all ranks were gathered."""

    library: str
    op: str
    dtype: str
    calls: int
    bytes: int  # of all ranks together


@dataclass(frozen=True)
class DeviceTime:
    """How long kernels were collected."""

    why_not: str | None
    seconds: float | None


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one device over time."""

    index: int
    name: str
    total: int
    peak_allocated: int
    peak_reserved: int
    points: list[tuple[float, int, int]]  # seconds, allocated and reserved bytes


@dataclass(frozen=True)
class Process:
    """One process of the program."""

    pid: int
    argv: list[str]
    rank: str | None
    started: float
    vendor: str
    torch: str
    flagos: str
    seconds: float
    error: str | None
    gathered: list[Gathered]
    device_time: DeviceTime
    memory: list[DeviceMemory]
    graphs: dict[str, int]  # counts of automatic graphs
    queued: int  # parts of calls that a second thread handed to the library
    problems: list[str]
    ended: bool
    chip: str | None
    tuned: bool
    lock: int  # its place among the report's locks
    operators: list[Operator]
    implementations: list[Implementation]
    calls: int
    fallbacks: int


@dataclass(frozen=True)
class Report:
    """The report of a run. Times are in nanoseconds (`_ns`) or seconds, sizes in bytes."""

    version: int
    command: str
    status: int
    outcome: str
    started: float
    seconds: float
    processes: list[Process]
    processes_without_calls: int
    processes_cut_short: int
    locks: list[str]


def gather(folder: Path, command: Sequence[str], ended: Ended) -> Report:
    """The report of a run whose processes left their files in a folder.

    Processes that called no operator on the device are only counted, and so are those that were killed too early to
    tell whether they did.
    """
    found = [process_file.read(path) for path in sorted(folder.glob("*.json"))]
    found.sort(key=lambda file: (_rank(file), file["started"]))
    locks: list[str] = []
    processes = []
    cut_short = 0
    for file in found:
        if not any(map(_is_routed, file["operators"].values())):
            cut_short += not file["ended"]
            continue
        if file["lock"] not in locks:
            locks.append(file["lock"])
        processes.append(_process(file, locks.index(file["lock"])))
    return Report(
        version=1,
        command=shlex.join(command),
        status=ended.status,
        outcome=outcome(ended.status),
        started=ended.started,
        seconds=ended.seconds,
        processes=processes,
        processes_without_calls=len(found) - len(processes) - cut_short,
        processes_cut_short=cut_short,
        locks=locks,
    )


def _rank(file: ProcessFile) -> int:
    rank = file["rank"] or ""
    return int(rank) if rank.isdigit() else -1


def outcome(status: int) -> str:
    """A status of a process in words."""
    if status >= 0:
        return "ended well" if status == 0 else f"failed with status {status}"
    return f"ended by {signal_name(status)}"


def _process(file: ProcessFile, lock: int) -> Process:
    speed = file["speed"]
    operators = [_operator(op, entry, speed["ratios"]) for op, entry in file["operators"].items()]
    operators.sort(key=lambda one: (-(one.device_ns or 0), -one.host_own_ns, one.op))
    return Process(
        pid=file["pid"],
        argv=file["argv"],
        rank=file["rank"],
        started=file["started"],
        vendor=file["vendor"],
        torch=file["torch"],
        flagos=file["flagos"],
        seconds=file["seconds"],
        error=file["error"],
        gathered=[Gathered(**one) for one in file["gathered"]],
        device_time=DeviceTime(**file["device_time"]),
        memory=[DeviceMemory(**one) for one in file["memory"]],
        graphs=file["graphs"],
        queued=file["queued"],
        problems=file["problems"],
        ended=file["ended"],
        chip=speed["chip"],
        tuned=bool(speed["ratios"]),
        lock=lock,
        operators=operators,
        implementations=_implementations(operators),
        calls=sum(one.calls for one in operators if one.routed),
        fallbacks=sum(one.fallbacks for one in operators),
    )


def _operator(
    op: str, entry: process_file.Operator, ratios: dict[str, dict[str, float]]
) -> Operator:
    served: dict[str, int] = dict(entry["served"])
    routed = _is_routed(entry)
    alternatives = [Alternative(**one) for one in entry.get("alternatives", [])]
    if entry["instead"]:
        native = _stand_in(alternatives)
        served[native] = served.get(native, 0) + entry["instead"]
    host: process_file.HostTime = entry.get("host") or {
        "calls": 0,
        "total_ns": 0,
        "own_ns": 0,
    }
    device = entry.get("device")
    calls = sum(served.values()) if routed else host["calls"]
    if not routed:
        served = {UNROUTED: calls}
    reasons = dict(entry.get("reasons", {}))
    unexplained = entry["fallbacks"] - sum(reasons.values())
    if unexplained > 0 and entry.get("first_reason"):
        first = entry["first_reason"]
        reasons[first] = reasons.get(first, 0) + unexplained
    return Operator(
        op=op,
        routed=routed,
        calls=calls,
        served=served,
        fallbacks=entry["fallbacks"],
        reasons=reasons,
        host_calls=host["calls"],
        host_total_ns=host["total_ns"],
        host_own_ns=host["own_ns"],
        device_calls=device["calls"] if device else 0,
        device_ns=device["ns"] if device else None,
        decided_by=entry.get("decided_by"),
        alternatives=alternatives,
        ratios=ratios.get(op.removeprefix("aten::"), {}) if op.startswith("aten::") else {},
        followed=entry.get("followed", 0),
        native=entry.get("native", {}),
    )


def _is_routed(entry: process_file.Operator) -> bool:
    """Whether the plan has the operator."""
    return bool(entry["served"] or entry["instead"] or entry["fallbacks"])


def _stand_in(alternatives: Sequence[Alternative]) -> str:
    """The implementation that serves a call that the chosen one declines."""
    for kind in ("vendor", "reference"):
        for one in alternatives:
            if not one.chosen and one.kind == kind:
                return one.impl_id
    return "the next one"


def _implementations(operators: Sequence[Operator]) -> list[Implementation]:
    """Calls and times by implementation. The times of an operator are divided by calls where several served it."""
    calls: Counter[str] = Counter()
    served: Counter[str] = Counter()
    host: Counter[str] = Counter()
    device: Counter[str] = Counter()
    for one in operators:
        for name, number in one.served.items():
            part = number / one.calls if one.calls else 0
            served[name] += 1
            calls[name] += number
            host[name] += round(one.host_own_ns * part)
            device[name] += round((one.device_ns or 0) * part)
    return [
        Implementation(name, served[name], calls[name], host[name], device[name])
        for name in sorted(served, key=lambda name: (-host[name], -calls[name], name))
    ]

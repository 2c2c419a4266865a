"""What the processes left, put together: the value that `--json` prints and that the page shows."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flagos.messages import signal_name
from torch_fl_tools.report.program import Ended

UNROUTED = "in no route"
"""What serves operators that the plan does not have: torch itself, by composition or by views."""


def gather(folder: Path, command: Sequence[str], ended: Ended) -> dict[str, Any]:
    """The report of a run. Times are in nanoseconds (`_ns`) or seconds, sizes in bytes.

    Processes that called no operator on the device are only counted, and so are those that were killed too early to
    tell whether they did.
    """
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    found.sort(key=lambda told: (_rank(told), told["started"]))
    locks: list[str] = []
    processes = []
    cut_short = 0
    for told in found:
        if not any(map(_is_routed, told["operators"].values())):
            cut_short += not told["ended"]
            continue
        if told["lock"] not in locks:
            locks.append(told["lock"])
        processes.append(_process(told, locks.index(told["lock"])))
    return {
        "version": 1,
        "command": shlex.join(command),
        "status": ended.status,
        "outcome": outcome(ended.status),
        "started": ended.started,
        "seconds": ended.seconds,
        "processes": processes,
        "processes_without_calls": len(found) - len(processes) - cut_short,
        "processes_cut_short": cut_short,
        "locks": locks,
    }


def _rank(told: dict[str, Any]) -> int:
    rank = told["rank"] or ""
    return int(rank) if rank.isdigit() else -1


def outcome(status: int) -> str:
    """A status of a process in words."""
    if status >= 0:
        return "ended well" if status == 0 else f"failed with status {status}"
    return f"ended by {signal_name(status)}"


def _process(told: dict[str, Any], lock: int) -> dict[str, Any]:
    rows = [_row(op, entry, told["speed"]["ratios"]) for op, entry in told["operators"].items()]
    rows.sort(key=lambda row: (-(row["device_ns"] or 0), -row["host_own_ns"], row["op"]))
    kept = {name: told[name] for name in told if name not in ("operators", "lock", "speed")}
    return {
        **kept,
        "chip": told["speed"]["chip"],
        "tuned": bool(told["speed"]["ratios"]),
        "lock": lock,
        "operators": rows,
        "implementations": _implementations(rows),
        "calls": sum(row["calls"] for row in rows if row["routed"]),
        "fallbacks": sum(row["fallbacks"] for row in rows),
    }


def _row(op: str, entry: dict[str, Any], ratios: dict[str, Any]) -> dict[str, Any]:
    served: dict[str, int] = dict(entry["served"])
    routed = _is_routed(entry)
    if entry["instead"]:
        native = _stand_in(entry)
        served[native] = served.get(native, 0) + entry["instead"]
    host = entry.get("host") or {"calls": 0, "total_ns": 0, "own_ns": 0}
    device = entry.get("device")
    calls = sum(served.values()) if routed else host["calls"]
    if not routed:
        served = {UNROUTED: calls}
    reasons = dict(entry.get("reasons", {}))
    unexplained = entry["fallbacks"] - sum(reasons.values())
    if unexplained > 0 and entry.get("first_reason"):
        first = entry["first_reason"]
        reasons[first] = reasons.get(first, 0) + unexplained
    return {
        "op": op,
        "routed": routed,
        "calls": calls,
        "served": served,
        "fallbacks": entry["fallbacks"],
        "reasons": reasons,
        "host_calls": host["calls"],
        "host_total_ns": host["total_ns"],
        "host_own_ns": host["own_ns"],
        "device_calls": device["calls"] if device else 0,
        "device_ns": device["ns"] if device else None,
        "decided_by": entry.get("decided_by"),
        "alternatives": entry.get("alternatives", []),
        "ratios": ratios.get(op.removeprefix("aten::"), {}) if op.startswith("aten::") else {},
    }


def _is_routed(entry: dict[str, Any]) -> bool:
    """Whether the plan has the operator."""
    return bool(entry["served"] or entry["instead"] or entry["fallbacks"])


def _stand_in(entry: dict[str, Any]) -> str:
    """What serves a call that the chosen implementation declines."""
    others = [one for one in entry.get("alternatives", []) if not one["chosen"]]
    for kind in ("vendor", "reference"):
        for one in others:
            if one["kind"] == kind:
                return str(one["impl_id"])
    return "the next one"


def _implementations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls and times by implementation. The times of an operator are divided by calls where several served it."""
    calls: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    host: Counter[str] = Counter()
    device: Counter[str] = Counter()
    for row in rows:
        for name, number in row["served"].items():
            part = number / row["calls"] if row["calls"] else 0
            operators[name] += 1
            calls[name] += number
            host[name] += round(row["host_own_ns"] * part)
            device[name] += round((row["device_ns"] or 0) * part)
    return [
        {
            "name": name,
            "operators": operators[name],
            "calls": calls[name],
            "host_own_ns": host[name],
            "device_ns": device[name],
        }
        for name in sorted(operators, key=lambda name: (-host[name], -calls[name], name))
    ]

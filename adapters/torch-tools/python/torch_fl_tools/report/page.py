"""The page: one HTML file that needs nothing else.

All text that comes from the program is escaped. A policy within the page forbids it to load anything, and to run any
script but the one here, which sorts tables.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from flagos import whole_file
from torch_fl_tools.report import pictures
from torch_fl_tools.report.data import UNROUTED
from torch_fl_tools.report.quantities import duration, number, share, size

_SHOWN = 15
_HOW = (
    "Calls are counted by the dispatch of the device itself, all of them, and attributed to the plan that was in "
    "force. A kernel in Python that calls its own operator has the native kernel serve that call, which counts, too.",
    "Time on the host is taken around every call of an operator with tensors of the device, in all threads, by a "
    "callback of torch; a call's time leaves out other such calls within it. It includes waiting for the device where "
    "an operator waits, and the cost of the callback. Times of several threads are added up. Where several "
    "implementations served an operator, its time is divided among them by calls.",
    "Memory is what the device's allocator tells about ten times a second; peaks are the allocator's own.",
)


def write(path: Path, told: Mapping[str, Any]) -> None:
    """Write the page, whole or not at all. Raises OSError."""
    # What of the program's words is no text has a sign in its place.
    whole_file.write(path, text(told).encode(errors="backslashreplace"))


def text(told: Mapping[str, Any]) -> str:
    """The page of a report (`data.gather`)."""
    files = resources.files(__package__)
    style = files.joinpath("style.css").read_text(encoding="utf-8")
    script = files.joinpath("sort.js").read_text(encoding="utf-8")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>flagos report: {escape(told['command'])}</title>",
            f"<style>{style}</style></head><body>",
            *_head(told),
            *(line for process in told["processes"] for line in _process(process, told)),
            *_locks(told["locks"]),
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _head(told: Mapping[str, Any]) -> Iterator[str]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["started"]))
    kind = "bad" if told["status"] else "good"
    yield f"<header><h1><code>{escape(told['command'])}</code></h1>"
    yield (
        f'<p>flagos report · {began} · {told["seconds"]:.1f} s · <span class="{kind}">{escape(told["outcome"])}</span>'
        "</p></header>"
    )
    if early := told["processes_cut_short"]:
        yield (
            f'<p class="bad">Processes that loaded flagos and ended before they could write what they did: {early}.</p>'
        )
    elif not told["processes"]:
        yield '<p class="bad">No process of the program called an operator on the flagos device.</p>'
    if others := told["processes_without_calls"]:
        yield f'<p class="faint">Processes that loaded flagos and called no operator on the device: {others}.</p>'


def _process(process: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[str]:
    rank = f"rank {process['rank']}, " if process["rank"] is not None else ""
    rows = process["operators"]
    classes = pictures.colours(process["implementations"], UNROUTED)
    timed = "device_ns" if any(row["device_ns"] for row in rows) else "host_own_ns"
    yield f"<section><h2>{escape(rank)}process {process['pid']}</h2>"
    yield f'<p class="faint">{escape(" ".join(process["argv"]))}</p>'
    if process["error"] is not None:
        yield f'<p class="bad">{escape(process["error"])}</p>'
    if not process["ended"]:
        yield (
            '<p class="bad">This process did not end by itself: what it did in its last seconds is missing.</p>'
        )
    yield from _facts(process)
    yield from _implementations(process, classes)
    slowest = [row for row in rows if row[timed]]
    slowest = sorted(slowest, key=lambda row: -row[timed])[:_SHOWN]
    where = "device" if timed == "device_ns" else "host"
    title = f"Slowest operators by time on the {where}"
    yield f"<h3>{title}</h3>{pictures.slowest(slowest, timed, classes, title)}"
    yield from _memory(process)
    yield from _fallbacks(rows)
    yield from _alternatives(slowest, process)
    yield from _operators(rows)
    yield from _measured(process)
    yield f"<p>Plan: lock {process['lock'] + 1} of {len(told['locks'])}, below.</p></section>"


def _facts(process: Mapping[str, Any]) -> Iterator[str]:
    rows = process["operators"]
    devices = ", ".join(dict.fromkeys(one["name"] for one in process["memory"]))
    facts = [
        (process["vendor"], f"vendor{': ' + devices if devices else ''}"),
        (number(sum(row["routed"] for row in rows)), "operators"),
        (number(process["calls"]), "calls"),
        (number(process["fallbacks"]), "fell back or were declined"),
        (duration(sum(row["host_own_ns"] for row in rows)), "on the host, in operators"),
        (f"{process['seconds']:.1f} s", "from the device's first use"),
    ]
    if any(row["device_ns"] for row in rows):
        total = sum(row["device_ns"] or 0 for row in rows)
        facts.append(
            (duration(total), f"on the device, in {process['device_time']['seconds']:.1f} s")
        )
    if process["memory"]:
        peak = max(one["peak_allocated"] for one in process["memory"])
        facts.append((size(peak), "most memory allocated"))
    items = "".join(f"<li><b>{escape(value)}</b>{escape(name)}</li>" for value, name in facts)
    yield f'<ul class="facts">{items}</ul>'


def _implementations(process: Mapping[str, Any], classes: Mapping[str, str]) -> Iterator[str]:
    found = process["implementations"]
    yield "<h3>Which implementation served</h3>"
    measures = [("calls", "calls"), ("host_own_ns", "time on the host")]
    if any(one["device_ns"] for one in found):
        measures.append(("device_ns", "time on the device"))
    for key, name in measures:
        title = f"Share of {name}"
        yield f"<p>{title}</p>" + pictures.shares(
            [(one["name"], one[key]) for one in found], classes, title
        )
    totals = {key: sum(one[key] for one in found) for key, _ in measures}
    body = [
        [
            (f'<i class="key {classes[one["name"]]}"></i>{escape(one["name"])}', None),
            (number(one["operators"]), one["operators"]),
            (number(one["calls"]), one["calls"]),
            (share(one["calls"], totals["calls"]), one["calls"]),
            (duration(one["host_own_ns"]), one["host_own_ns"]),
            (share(one["host_own_ns"], totals["host_own_ns"]), one["host_own_ns"]),
            _device_cell(one["device_ns"] if "device_ns" in totals else None),
        ]
        for one in found
    ]
    yield _table(
        ["implementation", "#operators", "#calls", "#share", "#host", "#share", "#device"], body
    )
    yield (
        f'<p class="faint">“{UNROUTED}”: operators that torch composes of others, views, collectives.</p>'
    )


def _memory(process: Mapping[str, Any]) -> Iterator[str]:
    yield "<h3>Memory over time</h3>"
    if not process["memory"]:
        yield "<p>Not measured: the process used no memory of the device, or ended before the first sample.</p>"
    for device in process["memory"]:
        title = f"flagos:{device['index']}, {device['name']}, {size(device['total'])}"
        yield (
            f'<p>{escape(title)}: <i class="key line-allocated"></i>allocated, '
            f'<i class="key line-reserved"></i>reserved (most: {size(device["peak_reserved"])}), '
            f'<i class="key line-peak"></i>most allocated: {size(device["peak_allocated"])}</p>'
        )
        yield pictures.memory(device, f"Memory of {title}")


def _fallbacks(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h3>Fallbacks and declined calls</h3>"
    fell = [row for row in rows if row["fallbacks"]]
    if not fell:
        yield "<p>None: every call was served by the implementation that the plan chose.</p>"
        return
    body = []
    for row in sorted(fell, key=lambda row: -row["fallbacks"]):
        reasons = "<br>".join(
            f"{number(count)} × {escape(why)}" for why, count in row["reasons"].items()
        )
        served = ", ".join(f"{name} {number(count)}" for name, count in row["served"].items())
        body.append(
            [
                (escape(row["op"]), None),
                (number(row["fallbacks"]), row["fallbacks"]),
                (number(row["calls"]), row["calls"]),
                (escape(served), None),
                (reasons or "not told", None),
            ]
        )
    yield _table(["operator", "#fell back", "#of calls", "served by", "reasons"], body)
    yield '<p class="faint">Where a call did not enter Python, the reason is that of the operator’s first.</p>'


def _alternatives(
    slowest: Sequence[Mapping[str, Any]], process: Mapping[str, Any]
) -> Iterator[str]:
    yield "<h3>Alternatives of the slowest operators</h3>"
    if not process["tuned"]:
        chip = process["chip"] or process["vendor"]
        yield (
            f"<p>Times of alternatives were not measured on {escape(chip)}: <code>flagos tune</code> measures "
            "FlagGems’ kernels beside the native ones.</p>"
        )
    several = [row for row in slowest if len(row["alternatives"]) > 1]
    if not several:
        yield "<p>None of them has another implementation here.</p>"
        return
    body = []
    for row in several:
        for one in row["alternatives"]:
            ratios = row["ratios"] if one["impl_id"].startswith("flaggems") else {}
            told = ", ".join(f"{shape}: {ratio:.2f} ×" for shape, ratio in ratios.items())
            body.append(
                [
                    (escape(row["op"]), None),
                    (escape(one["impl_id"]), None),
                    ("chosen: " + escape(row["decided_by"]) if one["chosen"] else "", None),
                    (told or "not measured", None),
                    (escape(one["reason"] or ""), None),
                ]
            )
    yield _table(
        ["operator", "implementation", "chosen", "time over the native kernel’s", "why (not)"], body
    )


def _operators(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h3>All operators</h3>"
    host = sum(row["host_own_ns"] for row in rows)
    body = []
    for row in rows:
        mean = row["host_own_ns"] / row["host_calls"] if row["host_calls"] else 0
        per_call = row["device_ns"] / row["device_calls"] if row["device_ns"] else None
        body.append(
            [
                (escape(row["op"]), None),
                (escape(", ".join(row["served"])), None),
                (number(row["calls"]), row["calls"]),
                (duration(row["host_own_ns"]), row["host_own_ns"]),
                (share(row["host_own_ns"], host), row["host_own_ns"]),
                (duration(mean), mean),
                _device_cell(row["device_ns"]),
                _device_cell(per_call),
                (number(row["fallbacks"]), row["fallbacks"]),
            ]
        )
    heads = ["operator", "served by", "#calls", "#host", "#share", "#host per call", "#device"]
    yield _table([*heads, "#device per call", "#fell back"], body)


def _measured(process: Mapping[str, Any]) -> Iterator[str]:
    device = process["device_time"]
    if device["why_not"]:
        about = f"Time on the device was not measured: {device['why_not']}."
    elif device["seconds"] is None:
        about = "Time on the device was not measured: the process ended while it was collected."
    else:
        about = (
            "Time on the device is of the kernels that the first thread launched in the first "
            f"{device['seconds']:.1f} s, collected by torch.profiler: totals are of that stretch, times per call of "
            "the calls in it."
        )
    told = [
        *_HOW,
        about,
        "Not counted: kernels that the program or torch.compile launches by itself.",
    ]
    told += [f"A part of the report failed: {problem}" for problem in process["problems"]]
    items = "".join(f"<li>{escape(line)}</li>" for line in told)
    yield f"<h3>How it was measured</h3><ul>{items}</ul>"


def _locks(locks: Sequence[str]) -> Iterator[str]:
    for at, lock in enumerate(locks, 1):
        yield (
            f"<section><h2>Lock {at} of {len(locks)}</h2><p>The plan at the end of the run. As a file that "
            "<code>FLAGOS_LOCK</code> names, it has every other plan refused.</p>"
            f"<details><summary>{number(lock.count(chr(10)))} lines</summary><pre>{escape(lock)}</pre></details>"
            "</section>"
        )


def _device_cell(nanoseconds: float | None) -> tuple[str, float]:
    return ("–", -1) if nanoseconds is None else (duration(nanoseconds), nanoseconds)


def _table(heads: Sequence[str], body: Sequence[Sequence[tuple[str, float | None]]]) -> str:
    """A table that sorts. Heads with `#` are of numbers; a cell is HTML and the value that it is sorted by."""
    top = "".join(
        f'<th{" class=n" if head[0] == "#" else ""}><button type="button">{escape(head.lstrip("#"))}</button></th>'
        for head in heads
    )
    lines = []
    for row in body:
        cells = []
        for at, (html, value) in enumerate(row):
            kind = "n" if heads[at][0] == "#" else "name" if at == 0 else ""
            sorted_by = f' data-value="{value:.0f}"' if value is not None else ""
            cells.append(f'<td class="{kind}"{sorted_by}>{html}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )

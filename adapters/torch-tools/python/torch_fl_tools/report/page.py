"""The page: one HTML file that needs nothing else, from the template `page.html`.

All text that comes from the program is escaped. A policy within the page forbids it to load anything, and to run any
script but the one here, which sorts tables.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from flagos import whole_file
from torch_fl_tools.report import pictures
from torch_fl_tools.report.data import UNROUTED, Operator, Process, Report
from torch_fl_tools.report.quantities import duration, number, share, size

_SHOWN = 15


@dataclass(frozen=True)
class _Section:
    """Facts about a process that the page shows beside its data."""

    process: Process
    classes: dict[str, str]  # colours of implementations
    slowest: list[Operator]
    timed: str  # by which time they are the slowest, as a field of `Operator`

    @property
    def on_device(self) -> bool:
        """Whether time on the device was measured."""
        return self.timed == "device_ns"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Values and their names, for the top of the section."""
        process, operators = self.process, self.process.operators
        devices = ", ".join(dict.fromkeys(one.name for one in process.memory))
        facts = [
            (process.vendor, f"vendor{': ' + devices if devices else ''}"),
            (number(sum(one.routed for one in operators)), "operators"),
            (number(process.calls), "calls"),
            (number(process.fallbacks), "fell back or were declined"),
            (duration(sum(one.host_own_ns for one in operators)), "on the host, in operators"),
            (f"{process.seconds:.1f} s", "from the device's first use"),
        ]
        if self.on_device:
            total = sum(one.device_ns or 0 for one in operators)
            facts.append(
                (duration(total), f"on the device, in {process.device_time.seconds:.1f} s")
            )
        if process.gathered:
            calls = sum(one.calls for one in process.gathered)
            facts.append((number(calls), "reductions gathered, which the library lacks"))
        if process.memory:
            peak = max(one.peak_allocated for one in process.memory)
            facts.append((size(peak), "most memory allocated"))
        seen = process.graphs.get("calls")
        if seen:
            followed = f"{process.graphs['followed'] / seen:.0%}"
            held = size(process.graphs["bytes held"])
            facts.append((followed, f"of calls followed by automatic graphs, which hold {held}"))
        if process.queued:
            facts.append((f"{process.queued:,}", "parts of calls queued by a second thread"))
        return facts

    @property
    def fallbacks(self) -> list[Operator]:
        """The operators with calls that fell back, those with the most first."""
        fell = [one for one in self.process.operators if one.fallbacks]
        return sorted(fell, key=lambda one: -one.fallbacks)

    @property
    def seen_by_graphs(self) -> list[Operator]:
        """The operators that were called while automatic graphs were on, those with the most native calls first."""
        seen = [one for one in self.process.operators if one.followed or one.native]
        return sorted(seen, key=lambda one: (-sum(one.native.values()), -one.followed, one.op))

    def shares(self, field: str, title: str) -> Markup:
        """A bar of what each implementation has of a sum."""
        parts = [(one.name, getattr(one, field)) for one in self.process.implementations]
        return pictures.shares(parts, self.classes, title)

    def total(self, field: str) -> int:
        """The sum over implementations."""
        return sum(getattr(one, field) for one in self.process.implementations)


def write(path: Path, report: Report) -> None:
    """Write the page, whole or not at all. Raises OSError."""
    # What of the program's words is no text has a sign in its place.
    whole_file.write(path, text(report).encode(errors="backslashreplace"))


def text(report: Report) -> str:
    """The page of a report."""
    files = resources.files(__package__)
    style = files.joinpath("style.css").read_text(encoding="utf-8")
    script = files.joinpath("sort.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(duration=duration, number=number, share=share, size=size)
    template = environment.from_string(files.joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(
        report=report,
        began=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.started)),
        sections=[_section(process) for process in report.processes],
        style=Markup(style),
        script=Markup(script),
        policy=Markup(f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"),
        pictures=pictures,
        unrouted=UNROUTED,
    )


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _section(process: Process) -> _Section:
    classes = pictures.colours(process.implementations, UNROUTED)
    timed = "device_ns" if any(one.device_ns for one in process.operators) else "host_own_ns"
    return _Section(process, classes, _slowest(process.operators, timed), timed)


def _slowest(operators: Sequence[Operator], timed: str) -> list[Operator]:
    some = [one for one in operators if getattr(one, timed)]
    return sorted(some, key=lambda one: -int(getattr(one, timed)))[:_SHOWN]

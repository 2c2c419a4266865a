"""Where the time of tests goes, from the JUnit files that pytest writes into ``target/durations``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.circles.running import DURATIONS


@dataclass(frozen=True)
class Test:
    """One test of a run, with its set-up."""

    run: str
    file: str
    name: str
    seconds: float


def every_test(folder: Path) -> Iterator[Test]:
    """All tests of the newest run of each part."""
    for path in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            seconds = float(case.get("time", 0))
            yield Test(path.stem, case.get("classname", ""), case.get("name", ""), seconds)


def table(longest: int) -> str:
    """Markdown: a row for each run, then one for each of its longest files and tests."""
    runs: dict[str, list[Test]] = defaultdict(list)
    for test in every_test(DURATIONS):
        runs[test.run].append(test)
    lines = ["| run | tests | seconds of all tests | its longest files |", "|---|---|---|---|"]
    for run, those in sorted(runs.items(), key=lambda item: -sum(t.seconds for t in item[1])):
        files: dict[str, float] = defaultdict(float)
        for test in those:
            files[test.file.rsplit(".", 1)[-1]] += test.seconds
        top = sorted(files.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} {seconds:.0f}" for name, seconds in top)
        lines.append(f"| {run} | {len(those)} | {sum(t.seconds for t in those):.0f} | {shown} |")
    every = sorted((test for those in runs.values() for test in those), key=lambda t: -t.seconds)
    lines += ["", "| seconds | run | test |", "|---|---|---|"]
    for test in every[:longest]:
        file = test.file.rsplit(".", 1)[-1]
        lines.append(f"| {test.seconds:.1f} | {test.run} | {file}::{test.name} |")
    return "\n".join(lines)

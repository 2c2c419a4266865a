"""Runs parts, two at a time, and keeps how long each took.

A part waits for processes, links and single threads for much of its time, so that another one beside it costs little.
What a part prints is shown whole when it has ended, and is in ``target/durations/PART.log`` until then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass

from tests.circles.parts import ROOT, Part

AT_ONCE = 2
DURATIONS = ROOT / "target" / "durations"
TIMES = DURATIONS / "parts.json"


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    name: str
    seconds: float
    processor_seconds: float
    """Of all its processes; less than `seconds` times the cores where they waited."""
    passed: bool


def run_one(part: Part) -> Outcome:
    """Runs ``make PART``."""
    DURATIONS.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with open(DURATIONS / f"{part.name}.log", "wb") as log:
        command = ["make", part.name]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = round(time.monotonic() - begun, 1)
    return Outcome(
        part.name, seconds, round(used.ru_utime + used.ru_stime, 1), process.returncode == 0
    )


def run(parts: Sequence[Part], at_once: int = AT_ONCE) -> list[Outcome]:
    """Runs parts; a failure does not keep the next from running."""
    outcomes: list[Outcome] = []
    print(f"running {len(parts)} parts, {at_once} at a time", flush=True)
    with ThreadPoolExecutor(at_once) as lanes:
        for done in as_completed([lanes.submit(run_one, part) for part in parts]):
            one = done.result()
            outcomes.append(one)
            save(one)
            log = (DURATIONS / f"{one.name}.log").read_text("utf-8", errors="replace")
            print(f"\n---- {one.name}\n{log}", end="")
            passed = "ok" if one.passed else "FAILED"
            count = f"{len(outcomes)} of {len(parts)}"
            print(f"---- {one.name}: {passed} after {one.seconds:.0f} s, {count}", flush=True)
    return outcomes


def save(outcome: Outcome) -> None:
    """Puts the outcome of a part into ``target/durations/parts.json``, in the place of its last one."""
    times = {**{one.name: one for one in saved()}, outcome.name: outcome}
    TIMES.write_text(json.dumps([asdict(one) for one in times.values()], indent=1), "utf-8")


def saved() -> list[Outcome]:
    """The last outcome of each part here."""
    if not TIMES.exists():
        return []
    return [Outcome(**one) for one in json.loads(TIMES.read_text("utf-8"))]


def report(outcomes: Sequence[Outcome], seconds: float | None = None) -> bool:
    """Prints a line for each part, the time of all together, and which failed; true if none did."""
    print("\n    wall  processors  part")
    for one in outcomes:
        passed = "ok" if one.passed else "FAILED"
        print(f"{one.seconds:6.0f} s {one.processor_seconds:9.0f} s  {one.name:<26} {passed}")
    if seconds is not None:
        used = sum(one.processor_seconds for one in outcomes)
        print(f"{seconds:6.0f} s {used:9.0f} s  in all", flush=True)
    failed = [one.name for one in outcomes if not one.passed]
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr, flush=True)
    return not failed

"""Runs parts one after the other, and keeps how long each took."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tests.circles.parts import ROOT, Part

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


def run(parts: Iterable[Part]) -> list[Outcome]:
    """Runs ``make PART`` for each; a failure does not keep the next from running."""
    outcomes = []
    for part in parts:
        print(f"\n---- {part.name} (about {part.seconds} s)", flush=True)
        begun, used = time.monotonic(), processor_seconds()
        status = subprocess.run(["make", part.name], cwd=ROOT, check=False).returncode
        seconds, used = time.monotonic() - begun, processor_seconds() - used
        outcomes.append(Outcome(part.name, round(seconds, 1), round(used, 1), status == 0))
        save(outcomes[-1])
    return outcomes


def processor_seconds() -> float:
    """What all children that have ended used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def save(outcome: Outcome) -> None:
    """Puts the outcome of a part into ``target/durations/parts.json``, in the place of its last one."""
    times = {**{one.name: one for one in saved()}, outcome.name: outcome}
    TIMES.parent.mkdir(parents=True, exist_ok=True)
    TIMES.write_text(json.dumps([asdict(one) for one in times.values()], indent=1), "utf-8")


def saved() -> list[Outcome]:
    """The last outcome of each part here."""
    if not TIMES.exists():
        return []
    return [Outcome(**one) for one in json.loads(TIMES.read_text("utf-8"))]


def report(outcomes: list[Outcome]) -> bool:
    """Prints a line for each part and which failed; true if none did."""
    print("\n    wall  processors  part")
    for one in outcomes:
        passed = "ok" if one.passed else "FAILED"
        print(f"{one.seconds:6.0f} s {one.processor_seconds:9.0f} s  {one.name:<26} {passed}")
    print(f"{sum(one.seconds for one in outcomes):6.0f} s              in all", flush=True)
    failed = [one.name for one in outcomes if not one.passed]
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr, flush=True)
    return not failed

"""The record of landings: which commit landed, when, and which parts of the outer circle CI ran with it.

``landings.jsonl`` has a line for each landing, the newest last. The commit of the last line is where the present change
begins. CI cannot write to the repository it tests, so the line of a landing is added by the next change:
``python -m tests.circles landed COMMIT``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.circles.parts import ROOT

RECORD = ROOT / "tests" / "circles" / "landings.jsonl"


@dataclass(frozen=True)
class Landing:
    """One landing."""

    commit: str
    date: str
    ran: list[str]


def git(*arguments: str) -> str:
    """What git prints. Raises ValueError with its message if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ValueError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def recorded() -> list[Landing]:
    """All landings on record."""
    if not RECORD.exists():
        return []
    return [Landing(**json.loads(line)) for line in RECORD.read_text("utf-8").splitlines()]


def record(landing: Landing) -> None:
    """Adds a line."""
    with RECORD.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(landing)) + "\n")


def last_runs(landings: Sequence[Landing]) -> dict[str, tuple[int, str]]:
    """Part → how many landings ago CI ran it last, 1 for the newest, and the date."""
    ages: dict[str, tuple[int, str]] = {}
    for age, landing in enumerate(reversed(landings), start=1):
        for name in landing.ran:
            ages.setdefault(name, (age, landing.date))
    return ages


def changed_files(base: str, head: str = "HEAD") -> list[str]:
    """Paths that differ between two commits. Raises ValueError if git does not have one of them."""
    return git("diff", "--name-only", "--no-renames", base, head).splitlines()

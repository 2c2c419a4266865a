"""The pages of docs/benchmarks: one for a subject, with all reports about it, the newest first."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "benchmarks"
SECTION = re.compile(r"^(?=## )", re.MULTILINE)


def keep(subject: str, report: str, folder: Path = FOLDER) -> Path:
    """Enters a report into the page of its subject, before the others. Returns the page.

    A report is a section: it begins with `## DATE: what was measured`. One with the same heading is replaced.
    """
    path = folder / f"{subject}.md"
    folder.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8") if path.exists() else f"# {subject}\n"
    head, *sections = SECTION.split(text)
    heading = report.partition("\n")[0]
    others = [section for section in sections if section.partition("\n")[0] != heading]
    parts = [head, report, *others]
    path.write_text("\n\n".join(part.strip("\n") for part in parts) + "\n", encoding="utf-8")
    return path

"""The figures on the front page of the documentation stand in the reports that it names, with their dates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.history import SECTION

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "index.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<figures>[^|]+) "
    r"\| \[(?P<date>[\d-]+)\]\((?P<report>benchmarks/[^)#]+)#(?P<anchor>[^)]+)\) \|$",
    re.MULTILINE,
)
FIGURES = list(ROW.finditer(PAGE))
NUMBER = re.compile(r"\d+\.\d+")


def anchor(section: str) -> str:
    """That of a section's heading."""
    heading = section.partition("\n")[0].removeprefix("## ").lower()
    return re.sub(r"[^\w -]", "", heading).replace(" ", "-")


def test_there_are_figures() -> None:
    assert len(FIGURES) >= 5
    assert all(NUMBER.search(row["figures"]) for row in FIGURES)


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row["what"])
def test_a_figure_stands_in_its_report(row: re.Match[str]) -> None:
    page = (DOCS / row["report"]).read_text(encoding="utf-8")
    reports = {anchor(section): section for section in SECTION.split(page)[1:]}
    assert row["anchor"].startswith(row["date"])
    standing = set(NUMBER.findall(reports[row["anchor"]]))
    assert set(NUMBER.findall(row["figures"])) <= standing


def test_every_chip_has_a_status() -> None:
    table = PAGE.split("## On which chips")[1].split("##")[0]
    rows = re.findall(r"^\| (?!chip|---)([^|]+) \| ([^|]+) \|", table, re.MULTILINE)
    assert len(rows) >= 5
    words = r"\*\*(hardware|emulated|forwarded|simulated)\*\*"
    assert [chip for chip, status in rows if re.search(words, status) is None] == []

"""Reports are entered into the page of their subject."""

from __future__ import annotations

from pathlib import Path

from tests.bench.history import FOLDER, SECTION, keep

OLD = "# Host\n\nWhat it costs.\n\n## 2026-11-21: overhead\n\n### Import\n\nOld.\n"


def test_the_newest_report_comes_first_and_the_same_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "host.md"
    path.write_text(OLD)
    for words in ("New.", "Newer."):
        assert keep("host", f"## 2026-11-22: overhead\n\n### Import\n\n{words}\n", tmp_path) == path
    new = "## 2026-11-22: overhead\n\n### Import\n\nNewer.\n\n"
    assert path.read_text() == OLD.replace("## 2026-11-21", f"{new}## 2026-11-21")


def test_a_subject_without_a_page_gets_one(tmp_path: Path) -> None:
    path = keep("wheels", "## 2026-11-22: sizes\n\nSmall.\n", tmp_path / "reports")
    assert path.read_text() == "# wheels\n\n## 2026-11-22: sizes\n\nSmall.\n"


def test_the_reports_of_every_page_have_dates_and_the_newest_comes_first() -> None:
    pages = sorted(FOLDER.glob("*.md"))
    assert pages
    for page in pages:
        _, *sections = SECTION.split(page.read_text(encoding="utf-8"))
        days = [section.removeprefix("## ")[:10] for section in sections]
        assert days == sorted(days, reverse=True), page.name
        assert all(day.startswith("20") for day in days), page.name

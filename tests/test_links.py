"""Every relative link of a Markdown file leads somewhere on a code host; `make test-docs` says the same of the site."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"^(```+).*?^\1[ \t]*$|(`+)(?!`).+?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def tracked() -> list[str]:
    """The Markdown files of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [file for file in listed.splitlines() if (ROOT / file).exists()]


def links(text: str) -> list[str]:
    """The links of a page, but for those in code. Their text may be code."""
    return LINK.findall(CODE.sub("", text))


@cache
def anchors(file: Path) -> set[str]:
    """What a code host makes of the headings: lower case, hyphens for spaces, no punctuation."""
    text = re.sub(
        r"^(```+).*?^\1[ \t]*$", "", file.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def lost(file: Path) -> list[str]:
    """The relative links of a file that lead to no file, or to no heading of it."""
    found = []
    for link in links(file.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = file.parent / path if path else file
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("name", tracked())
def test_every_link_leads_somewhere(name: str) -> None:
    assert lost(ROOT / name) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`, c\n[x](#a-b-c) [`x`](page.md) [x](no.md) `[x](code.md)` [x](page.md#d)\n"
        "```\n# e\n[x](fence.md)\n```\n[x](#e)\n"
    )
    assert lost(page) == ["no.md", "page.md#d", "#e"]

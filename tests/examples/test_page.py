"""Every example is on the page, with the command that its first lines name, and is short enough to be read."""

from __future__ import annotations

import ast
import re

import pytest

from tests.examples.page import EXAMPLES, PAGE, ROOT, SECTIONS, section
from tests.followed import blocks, commands

README = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


def documentation(example: str) -> list[str]:
    """The paragraphs of the docstring of an example."""
    source = (ROOT / "examples" / example).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").split("\n\n")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 13


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_short_and_says_what_it_shows(example: str) -> None:
    lines = (ROOT / "examples" / example).read_text(encoding="utf-8").splitlines()
    assert len(lines) < 80
    shows, command, *more = documentation(example)
    assert shows.endswith(".") and more
    assert command.split()[-1] == f"examples/{example}" and "\n" not in command


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_page_has_its_command(example: str) -> None:
    typed = [c.line for _, text in blocks(section(example)) for c in commands(text)]
    assert any(line.endswith(documentation(example)[1]) for line in typed)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_lists_name_it(example: str) -> None:
    assert f"| [{example}]({example}) |" in README
    assert re.search(rf"^\|.*\[{example}\]\(#", PAGE, re.MULTILINE)


def test_every_section_is_of_one_example_and_nothing_is_listed_that_is_not_there() -> None:
    assert len(SECTIONS) == len(EXAMPLES)
    assert sorted(re.findall(r"^\| \[(\w+\.py)\]", README, re.MULTILINE)) == EXAMPLES

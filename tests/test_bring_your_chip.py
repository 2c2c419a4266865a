"""docs/bring-your-chip.md can be followed from its first line to its last, and has no other text for its files."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.followed import FILE, Command, Reader, blocks, commands, matches

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "bring-your-chip.md").read_text()

#: What the page has, what it has instead, and what the failure says then.
MISTAKES = {
    "a copy that leaves its last byte behind": (
        "(size_t)work->number[0]);",
        "(size_t)work->number[0] - 1);",
        "copies-arrive",
    ),
    "a wait that is too short": (
        "while (stream->finished < place)",
        "while (stream->finished + 1 < place)",
        "FAIL",
    ),
    "what is no C": ("static void copy(Work* work) {", "static void copy(Work* work) {{", "error"),
    "a hole in the table": ("    .event_wait = event_wait,\n", "", "event_wait"),
    "a promise too much": ("mychip.toml: 34 passed", "mychip.toml: 35 passed", "34 passed"),
}


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader with an empty folder."""
    pytest.importorskip("torch_fl", reason="the torch adapter is not installed")
    folder = tmp_path / "mychip"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    return Reader(folder, {**kept, **quiet, "PATH": tools, "FLAGOS": str(ROOT)})


@pytest.mark.slow
@pytest.mark.needs("compiler")
def test_the_page_can_be_followed(reader: Reader) -> None:
    reader.follow(PAGE)
    typed = "\n".join(reader.typed)
    for part in ("vendor check", "python train.py", "FLAGOS_STRICT=1 python train.py", "explain"):
        assert part in typed
    # What is built has no more than the headers in it.
    sources = [path.read_text() for path in sorted(reader.folder.glob("*.[ch]"))]
    included = {name for text in sources for name in re.findall(r'#include "(.+)"', text)}
    own = {path.name for path in reader.folder.iterdir()}
    assert included - own == {"flagos_vendor.h", "flagos_kernels.h"}


@pytest.mark.slow
@pytest.mark.needs("compiler")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_on_the_page_is_found(reader: Reader, mistake: str) -> None:
    right, wrong, says = MISTAKES[mistake]
    assert PAGE.count(right) == 1
    begun, _, _ = PAGE.partition("## The first tensor")
    with pytest.raises(AssertionError, match=says):
        reader.follow(begun.replace(right, wrong))


def test_every_block_is_a_file_or_commands() -> None:
    for language, text in blocks(PAGE):
        if language == "console":
            assert commands(text)
        else:
            assert FILE.match(text.partition("\n")[0]), text
    assert PAGE.count("```") == 2 * len(blocks(PAGE))


def test_what_a_program_prints_is_compared() -> None:
    assert matches(["a", "...", "z in ... s"], "a\nb\nc\nz in 1.5 s  \n")
    assert matches([], "\n")
    assert not matches(["a", "z"], "a\nb\nz")
    assert not matches([], "a warning")
    assert not matches(["a.b"], "a-b")
    assert Command("x", ["TypeError: no"]).fails and not Command("x", ["no Error"]).fails

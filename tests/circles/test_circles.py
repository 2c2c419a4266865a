"""The table of parts is complete, and CI's choice is what it says."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from tests.circles.landings import Landing, last_runs
from tests.circles.parts import ROOT, Part, Table, matches, parse, table
from tests.circles.planning import plan

MARKED_SLOW = re.compile(r"^\s*(?:@|pytestmark = )pytest\.mark\.slow", re.MULTILINE)


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Every file of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in done.stdout.splitlines() if (ROOT / file).exists()]


def needs(table: Table, file: str) -> list[str]:
    """What the table says of a file: the parts that its change touches, or why it touches none."""
    parts = [part.name for part in table.parts if matches(file, part.about + part.uses)]
    return parts + [why for why, globs in table.unneeded.items() if matches(file, globs)]


def test_the_table_knows_every_file(tracked: list[str]) -> None:
    known = table()
    assert [file for file in tracked if not needs(known, file)] == []


def test_every_glob_of_the_table_has_a_file(tracked: list[str]) -> None:
    known = table()
    globs = {glob for part in known.parts for glob in part.about + part.uses}
    globs |= {glob for several in known.unneeded.values() for glob in several}
    assert [glob for glob in sorted(globs) if not any(matches(f, (glob,)) for f in tracked)] == []


def test_every_target_that_tests_is_a_part_and_every_part_a_target() -> None:
    files = [ROOT / "Makefile", *sorted((ROOT / "make").glob("*.mk"))]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):.*## ", text, re.MULTILINE))
    parts = {part.name for part in table().parts}
    assert parts <= targets
    tests = {name for name in targets if re.match("test-|conformance|check-|lint|loom|fuzz", name)}
    assert tests - parts == {"test-all"}


def test_slow_tests_lie_where_a_part_runs_them(tracked: list[str]) -> None:
    marked = [
        file
        for file in tracked
        if file.endswith(".py") and MARKED_SLOW.search((ROOT / file).read_text(encoding="utf-8"))
    ]
    assert marked
    assert [file for file in marked if not any(matches(file, p.slow) for p in table().parts)] == []


def test_there_is_time_for_turns_and_for_touched_parts() -> None:
    known = table()
    outer = known.circle("outer")
    assert sum(part.seconds for part in outer) / known.landings < known.outer_seconds
    assert max(part.seconds for part in outer) <= known.outer_seconds


EXAMPLE = parse("""
[ci]
outer_seconds = 600
landings = 3

[files]
core = ["core/", "*.toml"]

[[part]]
name = "quick"
circle = "inner"
seconds = 300

[[part]]
name = "kernels"
circle = "outer"
seconds = 200
about = ["kernels/**/*.py"]
uses = ["core"]

[[part]]
name = "chips"
circle = "outer"
seconds = 200
about = ["chips/"]
uses = ["core"]

[[part]]
name = "long"
circle = "outer"
seconds = 350
about = ["long/"]
""")
RAN = {"kernels": (1, "2026-01-01"), "chips": (1, "2026-01-01"), "long": (1, "2026-01-01")}


def chosen(files: list[str] | None, ages: dict[str, tuple[int, str]] = RAN) -> dict[str, str]:
    """The reasons of what runs, in order."""
    return {c.part.name: c.reason for c in plan(EXAMPLE, files, ages, "a commit") if c.runs}


def test_globs() -> None:
    kernels = EXAMPLE.named(["kernels"])[0]
    files = ["kernels/a.py", "kernels/b/c.py", "kernels/c.txt", "core/src/lib.rs", "Cargo.toml"]
    assert kernels.changed(files) == (2, 2)
    assert kernels.changed(["docs/core/a", "a/Cargo.toml"]) == (0, 0)


def test_what_has_waited_longest_has_its_turn_first() -> None:
    assert next(iter(chosen([], {**RAN, "long": (3, "2026-01-01")}))) == "long"
    assert next(iter(chosen([], {**RAN, "long": (2, ""), "chips": (4, "")}))) == "chips"
    never = {name: age for name, age in RAN.items() if name != "kernels"}
    assert next(iter(chosen([], never))) == "kernels"


def test_a_touched_part_goes_before_one_whose_turn_may_wait() -> None:
    for number in range(9):
        choices = plan(EXAMPLE, ["chips/a.c"], RAN, f"commit {number}")
        assert choices[0].part.name == "chips" and choices[0].reason == "touched"


def test_every_part_comes_round() -> None:
    landings: list[Landing] = []
    for number in range(12):
        choices = plan(EXAMPLE, [], last_runs(landings), f"commit {number}")
        ran = [choice.part.name for choice in choices if choice.runs]
        landings.append(Landing(f"commit {number}", "2026-01-01", ran))
        if number >= EXAMPLE.landings:
            ages = last_runs(landings)
            assert {name: age for name, (age, _) in ages.items() if age > 4} == {}
            assert len(ages) == 3


def test_the_nearest_touched_parts_run_as_long_as_there_is_time() -> None:
    reasons = {c.part.name: c.reason for c in plan(EXAMPLE, None, RAN, "a commit")}
    assert sum(EXAMPLE.named([name])[0].seconds for name in chosen(None)) <= EXAMPLE.outer_seconds
    assert [reason for reason in reasons.values() if "by hand" in reason] != []
    near = {**RAN, "long": (9, "")}
    assert list(chosen(["chips/a.c", "core/lib.rs"], near)) == ["long", "chips"]
    assert list(chosen(["kernels/a.py", "core/lib.rs"], near)) == ["long", "kernels"]


def test_the_same_commit_has_the_same_plan() -> None:
    assert plan(EXAMPLE, None, RAN, "x") == plan(EXAMPLE, None, RAN, "x")
    assert {next(iter(chosen_first)) for chosen_first in lots()} == {"kernels", "chips", "long"}


def lots() -> list[list[str]]:
    """The turns of thirty commits."""
    plans = (plan(EXAMPLE, [], RAN, f"commit {n}") for n in range(30))
    return [[choice.part.name for choice in choices if choice.runs] for choices in plans]


def test_a_word_that_the_table_does_not_know_is_refused() -> None:
    text = '[ci]\nouter_seconds = 1\nlandings = 1\n[[part]]\nname = "a"\n'
    with pytest.raises(ValueError, match="part a: unknown side"):
        parse(text + 'circle = "side"\nseconds = 1')
    with pytest.raises(ValueError, match="cover"):
        parse(text + 'circle = "inner"\nseconds = 1\ncover = []')
    with pytest.raises(ValueError, match="b is no part; the parts are: quick"):
        EXAMPLE.named(["b"])


def test_a_file_that_no_part_knows_is_noticed() -> None:
    assert needs(EXAMPLE, "other/a.py") == []
    assert needs(replace(EXAMPLE, unneeded={"docs": ("other/",)}), "other/a.py") == ["docs"]
    assert needs(EXAMPLE, "Cargo.toml") == ["kernels", "chips"]
    assert Part("a", "outer", 1, ("b/",)).changed(["b/c"]) == (1, 0)

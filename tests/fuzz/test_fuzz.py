"""The check's own tests: that a broken device is seen, and that a difference is made short."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import known
from .__main__ import main
from .control import CONTROLS
from .generate import KINDS, generator, replay
from .program import Step, script
from .reduce import reduce
from .schemas import schemas
from .session import Session
from .twins import run

SEEDS = (3, 4, 5)


@pytest.mark.host
def test_the_programs_of_some_seeds_give_the_same_on_the_device(tmp_path: Path) -> None:
    written = tmp_path / "fuzz.json"
    assert (
        main(["--seed", str(SEEDS[0]), "--programs", str(len(SEEDS)), "--json", str(written)]) == 0
    )
    counts = json.loads(written.read_text())
    assert counts["programs"] == len(SEEDS)
    assert counts["steps"] > 40
    assert counts["errors on both sides"] > 0
    assert counts["differences"] == []


@pytest.mark.parametrize("control", CONTROLS)
def test_a_broken_device_is_seen(control: str) -> None:
    texts = {
        "bits": [
            Step(
                "matmul.mm", "t71 = torch.ones(2, 2, device=dev) @ torch.ones(2, 2, device=dev)", 7
            )
        ],
        "writes": [
            Step("dense", "t11 = torch.zeros(3, device=dev)", 1),
            Step("setitem", "t11[1] = 2", 2),
        ],
        "errors": [
            Step(
                "matmul.mm", "t21 = torch.ones(2, 3, device=dev) @ torch.ones(2, 3, device=dev)", 2
            )
        ],
    }
    steps = texts[control]
    assert run(replay(steps), ("cpu", "cpu")).differences == []
    assert run(replay(steps), ("cpu", "cpu"), control=CONTROLS[control]).differences


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session that compares the CPU with itself."""
    made = Session(device="cpu", plugin="")
    yield made
    made.worker.close()


def test_a_control_is_reduced_to_a_few_steps(session: Session) -> None:
    session.control = "bits"
    session.run(3)
    session.control = ""
    [finding] = session.findings.values()
    assert finding.signature.endswith(": value")
    assert len(finding.steps) < 6
    assert "def program(dev):" in finding.script


OTHERS = {
    "value": "t11 += 1",
    "stride": "t21 = t11.new_zeros(2, 2).t()",
    "version": "t11.data.add_(0)",
    "alias": "t21 = t11.view(2, 2)",
    "requires_grad": "t11.requires_grad_()",
    "graph": "t11.requires_grad_(); t21 = t11 * 1",
    "gradient": "t11.grad = t11.detach() * 2",
    "name": "t31 = 1",
    "storage": "t11.untyped_storage().resize_(400)",
    "error": "raise KeyError(1)",
    "random state": "torch.rand(1)",
}


@pytest.mark.parametrize("what", OTHERS)
def test_every_kind_of_difference_is_seen(what: str) -> None:
    honest = {
        "version": "t11.add_(0)",
        "stride": "t21 = t11.new_zeros(2, 2)",
        "alias": "t21 = t11.view(2, 2).clone()",
    }
    other = OTHERS[what].replace("; ", "\n    ")
    text = f"if dev.index is None:\n    {honest.get(what, 'pass')}\nelse:\n    {other}"
    steps = [Step("first", "t11 = torch.zeros(2, 2, device=dev)"), Step(what, text)]
    assert run(replay(steps), ("cpu", "cpu:0")).differences


def test_a_program_goes_on_after_an_error_and_what_it_left_is_compared() -> None:
    steps = [
        Step("first", "t11 = torch.zeros(3, device=dev)"),
        Step("fails", "t11.add_(1)\nt21 = t11.view(7)"),
        Step("after", "t31 = t11 + 1"),
    ]
    outcome = run(replay(steps), ("cpu", "cpu"))
    assert outcome.raised == [1]
    assert outcome.steps == steps
    half = "t11[0] = 0 if dev.index is None else 1\nraise ValueError(1)"
    [difference] = run(replay([steps[0], Step("half", half)]), ("cpu", "cpu:0")).differences
    assert difference.kind == "value"


def test_a_seed_gives_the_same_program_every_time() -> None:
    first, again = (run(generator(7), ("cpu",)).steps for _ in range(2))
    assert first == again
    assert len(first) >= 15


def test_what_fails_is_reduced_to_its_parts() -> None:
    assert reduce(list(range(60)), lambda some: {3, 31, 59} <= set(some)) == [3, 31, 59]
    assert reduce([1], lambda some: True) == [1]
    tried: list[list[int]] = []

    def shows(some: list[int]) -> bool:
        tried.append(some)
        return False

    assert reduce(list(range(100)), shows, tries=5) == list(range(100))
    assert len(tried) == 5


def test_the_printed_program_runs_by_itself() -> None:
    steps = [
        Step("a", "t11 = torch.rand(2, device=dev)", 5),
        Step("b", "t11.view(7)"),
        Step("c", "t21 = t11 + 1"),
    ]
    text = script(steps, [1], "A program.", "cpu").replace("import torch_fl", "import math")
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    sides = ran.stdout.split("---- cpu\n")[1:]
    assert sides[0] == sides[1]
    assert "RuntimeError" in sides[0] and "t21" in sides[0]


def test_a_death_is_seen_and_the_next_program_runs(session: Session) -> None:
    assert session._dies([Step("end", "import os\nos._exit(3)")], ["cpu"])
    assert not session._dies([Step("goes on", "t11 = torch.ones(1)")], ["cpu", "cpu"])


def test_what_is_not_called_has_a_reason_and_the_rest_is_broad() -> None:
    assert len(schemas()) > 2000
    assert len(KINDS) > 30
    assert all(len(reason) > 5 for reason in known.NOT_CALLED.values())
    names = {schema.name.removeprefix("aten::") for schema in schemas()}
    assert not {name for name in names if known.not_called(name)}
    assert {"add", "mm", "index_put_", "_foreach_add"} <= names

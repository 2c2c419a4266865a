"""`flagos demo` as a person runs it, only shorter."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

SHORT = ("--steps", "4", "--tokens", "8", "--json")


def demo(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON report of one run."""
    command = [sys.executable, "-m", "torch_fl_cli.demo", *SHORT, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)


@pytest.fixture(scope="module")
def finished() -> tuple[int, dict[str, Any]]:
    """One ordinary run."""
    return demo()


@pytest.mark.host  # the demonstration compares with the CPU on every vendor
def test_the_demonstration_is_the_same_on_flagos_and_cpu(
    finished: tuple[int, dict[str, Any]],
) -> None:
    status, report = finished
    assert report["comparison"]["identical"], report["comparison"]
    assert report["losses"][-1] < report["losses"][0]
    assert report["losses"] == report["cpu_losses"]
    assert status == 0
    assert report["ok"]


def test_the_demonstration_counts_where_its_operators_ran(
    finished: tuple[int, dict[str, Any]],
) -> None:
    _, report = finished
    plan = report["plan"]
    assert plan["operators"] > 20
    assert plan["planned"] > 2000
    shares = plan["by_implementation"].values()
    assert plan["operators"] == sum(share["operators"] for share in shares)
    assert plan["calls"] == sum(share["calls"] for share in shares)
    assert plan["calls"] > plan["operators"]
    assert plan["fallbacks"] == 0


@pytest.mark.slow
def test_the_demonstration_fails_when_one_weight_differs() -> None:
    status, report = demo("--perturb")
    assert status == 1
    assert not report["ok"]
    assert not report["comparison"]["parameters_equal"]
    assert report["comparison"]["max_loss_difference"] > 0


def test_the_demonstration_names_what_is_missing() -> None:
    command = [sys.executable, "-m", "torch_fl_cli.demo", "--device", "flagos:99"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "flagos:99" in run.stderr
    assert "Traceback" not in run.stderr

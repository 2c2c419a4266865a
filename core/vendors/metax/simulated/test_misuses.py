"""The simulated runtime records every misuse, and nothing of correct use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.vendors.metax.simulated.build import build
from core.vendors.metax.simulated.misuses import CASES


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("simulated-metax"))


@pytest.mark.parametrize("name", CASES)
def test_program(name: str, library: Path, tmp_path: Path) -> None:
    case, report = CASES[name], tmp_path / "report"
    variables = {f"SIMULATED_METAX_{key}": value for key, value in case.variables.items()}
    hidden = ("MACA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [sys.executable, "-m", "core.vendors.metax.simulated.misuses", str(library), name],
        env={**environment, "SIMULATED_METAX_REPORT": str(report), **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = report.read_text().splitlines() if report.exists() else []
    assert lines == list(case.recorded)


def test_there_are_programs_of_both_kinds() -> None:
    assert sum(bool(case.recorded) for case in CASES.values()) >= 20
    assert any(not case.recorded for case in CASES.values())

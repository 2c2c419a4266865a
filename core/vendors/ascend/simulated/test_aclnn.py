"""The simulated operators' libraries record every misuse, nothing of correct use, and compute what torch does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Both modules register their programs.
from core.vendors.ascend.simulated import aclnn_misuses, aclnn_uses, build, operators  # noqa: F401
from core.vendors.ascend.simulated.aclnn import FOLDER, run_all
from core.vendors.ascend.simulated.library import CASES, run

NAMES = [name for name in CASES if name.startswith("aclnn_")]
BY_FILE_ALONE = {"aclnn_misuses.repeatable_executor_that_is_lost"}


@pytest.fixture(scope="session")
def folder() -> Path:
    return build.build()


@pytest.fixture(scope="session")
def shared(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    return run_all(folder, [name for name in NAMES if not CASES[name].environment])


@pytest.mark.parametrize("name", NAMES)
def test_program(
    name: str, folder: Path, shared: dict[str, tuple[list[str], list[str]]], tmp_path: Path
) -> None:
    recorded, report = shared.get(name) or run(name, tmp_path, **{FOLDER: str(folder)})
    expected = list(CASES[name].recorded)
    assert report == expected
    assert recorded == ([] if name in BY_FILE_ALONE else expected)


def test_programs_of_both_kinds() -> None:
    assert all(CASES[name].recorded for name in NAMES if name.startswith("aclnn_misuses."))
    assert not any(CASES[name].recorded for name in NAMES if name.startswith("aclnn_uses."))
    assert sum(name.startswith("aclnn_misuses.") for name in NAMES) >= 40


def in_process_of_its_own(module: str, folder: Path, **variables: str) -> str:
    environment = {**os.environ, FOLDER: str(folder), **variables}
    done = subprocess.run(
        [sys.executable, "-m", f"core.vendors.ascend.simulated.{module}"],
        env=environment,
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_values(folder: Path) -> None:
    """What several operators of ATen make, or one of another form, compared with torch."""
    assert json.loads(in_process_of_its_own("aclnn_values", folder).splitlines()[-1]) == []


def test_a_workspace_of_two_streams_is_noticed(folder: Path) -> None:
    variables = {"SIMULATED_ASCEND_DELAY_US": "2000"}
    recorded = json.loads(in_process_of_its_own("aclnn_race", folder, **variables))
    assert recorded
    assert set(recorded) == {
        "aclnnNeg: other work has changed the workspace (not noticed by the vendor)"
    }


def test_an_operator_that_cannot_be_hidden_ends_the_process(folder: Path) -> None:
    load = f"import ctypes; ctypes.CDLL({str(folder / 'libopapi.so')!r})"
    environment = {**os.environ, "SIMULATED_ASCEND_HIDE": "aclnnNothing"}
    done = subprocess.run([sys.executable, "-S", "-c", load], env=environment, capture_output=True)
    assert done.returncode == -signal.SIGABRT
    assert b"aclnnNothing" in done.stderr


def test_every_program_names_what_it_has() -> None:
    """Names in programs are parameters, or set before; results are tensors."""
    constants = {"float", "long", "int", "bool", "double", "byte", "None", "True", "False"}
    words = {"if", "else", "and", "or"}
    for operator in operators.load().values():
        names = {parameter.name for parameter in operator.parameters}
        reads, writes = operators.names_of(operator.program)
        assert reads <= names | writes | constants | words, operator.name
        assert writes & names, operator.name

"""The simulated runtime records every misuse, and nothing of correct use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Both modules register their programs.
from core.vendors.ascend.simulated import misuses, uses  # noqa: F401
from core.vendors.ascend.simulated.library import CASES, library, run

# What is recorded in a child of the program's process, or at the end of it.
BY_FILE_ALONE = {
    "misuses.forked_child",
    "misuses.import_that_the_exporter_does_not_allow",
    "misuses.leaks_at_exit",
}


# Those of the operators' libraries are run by test_aclnn.
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("aclnn_")])
def test_program(name: str, tmp_path: Path) -> None:
    recorded, report = run(name, tmp_path)
    expected = list(CASES[name].recorded)
    assert report == expected
    assert recorded == ([] if name in BY_FILE_ALONE else expected)


def test_settings_that_cannot_be_read_end_the_process() -> None:
    load = f"import ctypes; ctypes.CDLL({str(library())!r})"
    for name, value in (
        ("MEMORY", "much"),
        ("FAULT", "aclrtFree"),
        ("HIDE", "aclrtNothing"),
        ("VERSION", "x"),
    ):
        environment = {**os.environ, f"SIMULATED_ASCEND_{name}": value}
        done = subprocess.run(
            [sys.executable, "-S", "-c", load], env=environment, capture_output=True
        )
        assert done.returncode == -signal.SIGABRT
        assert value.encode() in done.stderr


def test_there_are_programs_of_both_kinds() -> None:
    assert all(case.recorded for name, case in CASES.items() if name.startswith("misuses."))
    assert not any(case.recorded for name, case in CASES.items() if name.startswith("uses."))
    assert sum(name.startswith("misuses.") for name in CASES) >= 60
    assert any(name.startswith("uses.") for name in CASES)

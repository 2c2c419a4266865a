"""Runs `flagos bisect` for tests, over `program.py` or another program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch_fl  # noqa: F401  gives torch.flagos

PROGRAM = Path(__file__).with_name("program.py")
FEW = "exp mm tanh add.Tensor"
SECONDS = 600


class Bisect:
    """Runs the command in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(
        self, *options: str, program: list[str] | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
        command = program if program is not None else [sys.executable, str(PROGRAM)]
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("flagos")), "bisect", *options, "--", *command],
            cwd=self.folder,
            env={**kept, "FLAGOS_VENDOR": "host", "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *options: str, status: int, program: list[str] | None = None, **variables: str
    ) -> dict[str, Any]:
        """The JSON that it prints, and `progress`, the lines of standard error."""
        process = self.start("--json", *options, program=program, **variables)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == status, (out, err)
        print(err)
        report: dict[str, Any] = json.loads(out) | {"progress": err.splitlines()}
        return report


def operators(report: dict[str, Any]) -> list[list[str]]:
    """The operators of each cause, sorted."""
    return sorted(
        sorted(each["op"].removeprefix("aten::") for each in cause["operators"])
        for cause in report["causes"]
    )


def repro(
    report: dict[str, Any], bisect: Bisect, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs the repro of the first cause, outside of the search and its folder."""
    path = bisect.folder / report["causes"][0]["call"]["repro"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    return subprocess.run(
        [sys.executable, str(path)],
        cwd="/",
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

"""Runs `flagos accuracy` for tests, over `program.py` or another program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("program.py")
SECONDS = 600


class Accuracy:
    """Runs the command in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(
        self, *options: str, program: list[str] | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it, with the variables of the program."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
        command = program if program is not None else [sys.executable, str(PROGRAM)]
        behind = ["--", *command] if command else []
        return subprocess.run(
            [str(Path(sys.executable).with_name("flagos")), "accuracy", *options, *behind],
            cwd=self.folder,
            env={**kept, "FLAGOS_VENDOR": "host", **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def __call__(
        self, *options: str, status: int, program: list[str] | None = None, **variables: str
    ) -> dict[str, Any]:
        """The JSON that it prints, and `progress`, the lines of standard error."""
        ended = self.start("--json", *options, program=program, **variables)
        print(ended.stderr)
        assert ended.returncode == status, (ended.stdout, ended.stderr)
        report: dict[str, Any] = json.loads(ended.stdout)
        return {**report, "progress": ended.stderr.splitlines()}


def causes(report: dict[str, Any]) -> list[list[str]]:
    """The operators of each cause that the search found."""
    return [
        sorted(each["op"].removeprefix("aten::") for each in cause["operators"])
        for cause in report["search"]["causes"]
    ]

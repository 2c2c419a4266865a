"""Processes with torch: a program of `ranks/` once a rank, as a launcher would run it, and scripts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@dataclass
class Rank:
    """How one rank ended: its status, -9 where it had to be killed, and what it wrote."""

    status: int
    output: str


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@cache
def _zygote(kind: str) -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FLAGOS_") or name == "FLAGOS_VENDOR"
    }
    # Ranks share the processors: threads of each would only get in each other's way.
    environment |= {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(HERE / "zygote.py"), kind],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(kind: str, request: dict[str, Any]) -> list[Any]:
    zygote = _zygote(kind)
    assert zygote.stdin is not None and zygote.stdout is not None
    zygote.stdin.write(json.dumps(request) + "\n")
    zygote.stdin.flush()
    return list(json.loads(zygote.stdout.readline()))


def launch(
    program: str, *arguments: str, ranks: int = 2, timeout: float = 170, **variables: str
) -> list[Rank]:
    """Every rank's end. Ranks that still run after `timeout` seconds are killed."""
    request = {
        "program": str(HERE / "ranks" / program),
        "arguments": arguments,
        "ranks": ranks,
        "timeout": timeout,
        "environment": {
            "WORLD_SIZE": str(ranks),
            **variables,
        },
    }
    return [Rank(*end) for end in _ask("programs", request)]


def run_script(
    script: str,
    environment: dict[str, str],
    variables: Mapping[str, str | None] | None = None,
    *,
    fails: bool = False,
    fresh: bool = False,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Runs `python -c script` in this environment; a variable of value None is removed.

    With `fresh=True` it is a new interpreter; otherwise torch has been imported, and no backend. The test
    fails unless the script ends well, or badly with `fails=True`. Until it has ended, `timeout` seconds may pass.
    """
    given = {**environment, **(variables or {})}
    environment = {name: value for name, value in given.items() if value is not None}
    script = textwrap.dedent(script)
    command = [sys.executable, "-c", script]
    if fresh:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout
        )
    else:
        request = {"script": script, "environment": environment, "timeout": timeout}
        done = subprocess.CompletedProcess(command, *_ask("scripts", request))
    if (done.returncode != 0) != fails:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def launch_all_well(
    program: str, *arguments: str, ranks: int = 2, timeout: float = 170, **variables: str
) -> list[str]:
    """The output of every rank, all of which must end with status 0."""
    ends = launch(program, *arguments, ranks=ranks, timeout=timeout, **variables)
    for rank, end in enumerate(ends):
        assert end.status == 0, f"rank {rank} ended with {end.status}:\n{end.output}"
    return [end.output for end in ends]

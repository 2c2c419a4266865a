"""Programs of several ranks, in processes of their own, with the trainers on the path."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "TRAINERS_PATH"
PROGRAMS = Path(__file__).with_name("programs")
# What a shell has set must not choose another device, or another path, for a run.
_OURS = (
    "DS_",
    "ACCELERATE_",
    "FLAGOS_",
    "TEFL_",
    "TE_FL_",
    "NVTE_",
    "MASTER_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
)


def folder() -> Path:
    """The folder that the trainers were installed into. Skips the module where there is none."""
    path = os.environ.get(VARIABLE)
    if not path or not (Path(path) / "deepspeed").is_dir():
        pytest.skip(
            f"{VARIABLE} names no folder with DeepSpeed: make test-trainers",
            allow_module_level=True,
        )
    return Path(path)


def checkout(variable: str, file: str) -> Path:
    """The checkout that a variable names. Skips the module where there is none."""
    path = os.environ.get(variable)
    if not path or not (Path(path) / file).exists():
        pytest.skip(f"{variable} names no folder with {file}", allow_module_level=True)
    return Path(path)


def environment(*paths: Path, **variables: str) -> dict[str, str]:
    """The variables of a program whose ranks have one thread and a flagos device each."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    home = folder()
    kept["PATH"] = os.pathsep.join((str(home / "bin"), kept["PATH"]))  # ninja
    kept["PYTHONPATH"] = os.pathsep.join(map(str, (home, *paths)))
    return {**kept, "OMP_NUM_THREADS": "1", "FLAGOS_HOST_DEVICES": "2", **variables}


_WATCHER = """
import os, signal, threading, time
def watch():
    while not os.path.exists({path!r}): time.sleep(0.01)
    {fault}
if os.environ.get("LOCAL_RANK") == "1": threading.Thread(target=watch, daemon=True).start()
"""
#: Faults of a rank, as statements.
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
#: What writers say of a full disk: the system's words, or those of torch's writer of archives.
FULL = re.compile("No space left on device|inline_container")


def without(operator: str) -> str:
    """The fault of a rank that loses the kernel of an operator: the host vendor has none of CUDA's."""
    return f"import flagos; flagos.set_route({operator!r}, 'vendor:cuda')"


def breaker(place: Path, path: Path, fault: str) -> Path:
    """A folder to put on the path of a job: its second rank has the fault as soon as a path exists."""
    folder = place / "breaker"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_WATCHER.format(path=str(path), fault=fault))
    return folder


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A file system of a size. Skips the test where mounting is not allowed."""
    folder = place / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk is mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def launch(
    program: Path | str,
    *arguments: str,
    variables: dict[str, str],
    ranks: int = 2,
    timeout: float = 600,
    fails: bool = False,
    cwd: Path | None = None,
) -> str:
    """Runs a program under torchrun. Returns what it printed, on both streams."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(program), *arguments]
    done = subprocess.run(
        command,
        env=variables,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout[-6000:]
    return done.stdout


def results(output: str) -> dict[str, dict[str, Any]]:
    """The lines of JSON that rank 0 printed, by their case."""
    marked = (line.partition("RESULT ")[2] for line in output.splitlines())
    found = [json.loads(line) for line in marked if line]
    return {one["case"]: one for one in found}

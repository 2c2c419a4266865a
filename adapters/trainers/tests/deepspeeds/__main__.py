"""Runs DeepSpeed's own unit tests on flagos and on the CPU, and compares their ends.

    DEEPSPEED_PATH=<checkout> make test-deepspeed DEEPSPEEDS="runtime/zero v1/moe/test_moe.py" ARGS="--most 1"

The tests are files and folders below `tests/unit`. Each file has a process of its own; where a test hangs, another one
goes on behind it. Fails when a test fails on flagos that does not fail on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..ranks import checkout, environment

DEVICES = ("flagos", "cpu")
FAILURES = ("failed", "hangs")
RANKS = 4  # the most that a test has here: those of more are skipped
PATIENCE = 240  # seconds until DeepSpeed gives a test up: four ranks share what cores there are

# Minutes, once: within a test DeepSpeed would give it up, and leave a lock behind. The third is for gloo's all-reduces.
_BUILD = """
from deepspeed.ops import op_builder
for name in ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder"):
    builder = getattr(op_builder, name)()
    if builder.is_compatible():
        builder.load()
"""

Ends = dict[str, dict[str, str]]
_groups: set[int] = set()


def variables(device: str, root: Path) -> dict[str, str]:
    """The environment of DeepSpeed's tests."""
    devices = {
        # DeepSpeed's tests read the number of devices from these, whatever the device is.
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(RANKS))),
        "LOCAL_SIZE": str(RANKS),
        "FLAGOS_HOST_DEVICES": str(RANKS),
    }
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if device == "cpu":
        quiet["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    paths = (Path(__file__).parent, root / "tests")
    return environment(
        *paths, DS_ACCELERATOR=device, DS_UNITTEST_TIMEOUT=str(PATIENCE), **devices, **quiet
    )


def kill(group: int) -> None:
    """Ends a group of processes, of which none may be left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def stop(*_: object) -> None:
    """Ends this process, and the ranks of the tests that run."""
    for group in list(_groups):
        kill(group)
    os._exit(1)


def once(file: Path, root: Path, ends: Path, log: Path, environ: dict[str, str]) -> None:
    """One process of pytest over a file. It is ended with its ranks when nothing has ended for too long."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "plugin"]
    command += ["-p", "no:xdist", "-p", "no:cacheprovider"]
    command += ["-c", str(root / "tests/pytest.ini"), "--rootdir", str(root / "tests"), str(file)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environ, cwd=root / "tests/unit", stdout=output, stderr=output, start_new_session=True
        )  # fmt: skip
        _groups.add(process.pid)
        while process.poll() is None and time.time() - ends.stat().st_mtime < 2 * PATIENCE:
            time.sleep(0.5)
        _groups.discard(process.pid)
        # DeepSpeed waits for ranks that hang; they are in the same group of processes.
        kill(process.pid)
        process.wait()


def build(device: str, root: Path) -> None:
    """Has DeepSpeed compile its code for the host."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD], env=variables(device, root), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"DeepSpeed cannot compile its code for the host: {done.stderr[-2000:]}")


def read(ends: Path) -> Ends:
    """The last that was written of each test."""
    lines = map(json.loads, ends.read_text(encoding="utf-8").splitlines())
    return {one["name"]: one for one in lines}


def run(device: str, file: Path, root: Path, most: int, folder: Path) -> Ends:
    """The ends of a file's tests on one device, by name."""
    name = f"{file.relative_to(root / 'tests/unit').with_suffix('')}.{device}".replace("/", "-")
    ends, log = folder / f"{name}.jsonl", folder / f"{name}.log"
    ends.touch()
    environ = variables(device, root)
    environ.update(DEEPSPEEDS_ENDS=str(ends), DEEPSPEEDS_MOST=str(most))
    while True:
        before = len(read(ends))
        os.utime(ends)
        once(file, root, ends, log, environ)
        found = read(ends)
        # A test that hangs ends the process. Where none did, none is left, or pytest cannot collect: its log says so.
        if not any(one["end"] == "hangs" for one in list(found.values())[before:]):
            return found


def counted(ends: Ends) -> str:
    """How many ended how."""
    counts = Counter(one["end"] for one in ends.values())
    return ", ".join(f"{count} {end}" for end, count in sorted(counts.items())) or "no test ran"


def main() -> int:
    """Runs and compares; the exit status is 1 when a test fails on flagos alone."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="+", help="files and folders below tests/unit")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="cases of each test (all)")
    parser.add_argument("--alone", action="store_true", help="without the CPU")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="for logs and ends; a run goes on where its ends stop",
    )
    options = parser.parse_args()
    root = checkout("DEEPSPEED_PATH", "tests/unit/common.py").resolve()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="deepspeeds-"))
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for test in options.tests:
        place = root / "tests/unit" / test
        files += sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    devices = DEVICES[:1] if options.alone else DEVICES
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, stop)
    for device in devices:
        build(device, root)
    wrong = []
    for file in files:
        with ThreadPoolExecutor() as both:
            runs = {d: both.submit(run, d, file, root, options.most, folder) for d in devices}
        found = {device: one.result() for device, one in runs.items()}
        print(file.relative_to(root / "tests/unit"))
        for device, ends in found.items():
            print(f"  {device}: {counted(ends)}", flush=True)
        for name, end in found["flagos"].items():
            there = found.get("cpu", {}).get(name, {"end": "not run"})
            if end["end"] in FAILURES and there["end"] not in FAILURES:
                last = [line for line in end["why"].splitlines() if line.strip()][-1:]
                wrong.append(f"{name} {end['end']}: {''.join(last).strip()[:200]}")
    for line in wrong:
        print(f"  {line}")
    print(f"logs and every end are in {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

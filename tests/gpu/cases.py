"""Programs of an engine's adapter as cases: on flagos beside the engine's own CUDA platform, several at a time."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from tests.bench.gpu.vllm import kill

_OF_THE_SIDE = ("calls", "device", "fallbacks", "gathered", "runner", "torch_cuda_kept")


class Case(Protocol):
    """What is asked of a case here."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Those that it runs on, of `cuda` and `flagos`."""

    @property
    def ranks(self) -> int:
        """The devices that it needs."""


def parser(module: str, doc: str, dtype: str) -> argparse.ArgumentParser:
    """The command line that all engines have."""
    result = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--cases", default="*", help="patterns of names, by semicolons")
    result.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 3))
    result.add_argument("--seconds", type=float, default=200.0, help="of each run")
    result.add_argument("--sides", default="cuda,flagos", choices=["cuda,flagos", "flagos"])
    result.add_argument("--dtype", default=dtype, help="of models that are not quantized")
    result.add_argument("--json", type=Path)
    result.add_argument("--logs", type=Path)
    result.add_argument("--list", action="store_true", help="the cases, and end")
    return result


def choose(arguments: argparse.Namespace, cases: Mapping[str, Case]) -> list[str]:
    """The names that the command line means. Exits behind a list of all where it asks for that, or means none."""
    patterns = arguments.cases.split(";")
    chosen = [name for name in cases if any(fnmatchcase(name, p) for p in patterns)]
    if arguments.list or not chosen:
        print("\n".join(cases))
        sys.exit(int(not chosen))
    return chosen


def place_on(environment: dict[str, str], case: Case, device: int) -> None:
    """Gives a case of one rank a device, and one of more as many of the host vendor's where there is no other."""
    if case.ranks == 1:
        environment["CUDA_VISIBLE_DEVICES"] = str(device)
    else:
        environment["FLAGOS_HOST_DEVICES"] = str(case.ranks)


def reported(command: list[str], environment: Mapping[str, str], log: Path, timeout: float) -> Any:
    """What a program reports. Raises RuntimeError with the end of its log."""
    with open(log, "w") as errors, subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            kill(process)  # and workers that it left
        errors.write(output)  # the engine's own messages
    lines = [line for line in output.splitlines() if line.startswith("REPORT ")]
    if process.returncode != 0 or not lines:
        raise RuntimeError(f"status {process.returncode}: {log.read_text()[-3000:]}")
    return json.loads(lines[-1].removeprefix("REPORT "))


def differences(cuda: dict[str, Any], flagos: dict[str, Any]) -> list[str]:
    """What the two sides report differently."""
    names = (cuda.keys() | flagos.keys()) - set(_OF_THE_SIDE)
    found = []
    for name in sorted(names):
        ours, theirs = flagos.get(name), cuda.get(name)
        if ours == theirs:
            continue
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
            found.append(f"{name}: {equal} of {len(ours)} equal")
        else:
            found.append(name)
    return found


def compare(reports: dict[str, Any]) -> tuple[str, list[str]]:
    """A line about the sides of a case that ended well, and what they report differently."""
    if "cuda" not in reports:
        return "ran", []
    different = differences(reports["cuda"], reports["flagos"])
    return "differs: " + ", ".join(different) if different else "same bits", different


def run_all(
    chosen: list[str],
    cases: Mapping[str, Case],
    arguments: argparse.Namespace,
    logs: Path,
    run: Callable[[str, str, int, Path], Any],
    judge: Callable[[str, dict[str, Any]], tuple[str, bool]],
) -> int:
    """Runs cases on their sides, and prints a line of each as it ends. Returns the exit status.

    `run` has the name, the side, the device and the log, `judge` the name and the reports of the sides.
    """
    import torch

    devices, sides = torch.cuda.device_count(), arguments.sides.split(",")
    for name in [name for name in chosen if 0 < devices < cases[name].ranks]:
        print(f"{name}: not run, it needs {cases[name].ranks} devices", flush=True)
        chosen.remove(name)
    logs.mkdir(parents=True, exist_ok=True)
    failed, numbers, results = False, count(), {}

    def sides_of(name: str) -> tuple[str, dict[str, Any], float]:
        begun, reports, device = time.monotonic(), {}, next(numbers) % max(1, devices)
        for side in (side for side in cases[name].sides if side in sides):
            log = logs / f"{name.replace(' ', '_').replace(',', '')}-{side}.log"
            try:
                reports[side] = run(name, side, device, log)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                reports[side] = error
        return name, reports, time.monotonic() - begun

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for done in as_completed([pool.submit(sides_of, name) for name in chosen]):
            name, reports, seconds = done.result()
            broken = {side: r for side, r in reports.items() if isinstance(r, Exception)}
            if broken:
                told = "; ".join(f"{side}: {str(why)[-900:]}" for side, why in broken.items())
                line, holds = f"FAILED {told}", False
            else:
                line, holds = judge(name, reports)
            failed |= not holds
            results[name] = {"line": line, "holds": holds, "seconds": seconds}
            print(f"{name} ({seconds:.0f} s): {line}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
    return int(failed)

"""Whole models on flagos beside torch's own CUDA, turn by turn in one process: time, peak memory, and the same results.

    python -m tests.bench.gpu.eager [--models NAMES] [--rounds N] [--seconds S] [--json FILE] [--device-pair A,B]

Both sides of all models are in one process; one that dies or hangs takes its model along, and another process goes on
with the next. First both sides take --checked steps under deterministic algorithms, whose losses have to be equal in
every bit; then the rounds, each of as many steps as fill --seconds on the first side. Prints the ratio of times round
by round (over 1: flagos takes longer), and that of the peaks of allocated memory. Ends with 1 when a model failed or
the losses differ.

    python -m tests.bench.gpu.eager --models tiny-mlp-train,bert-train --rounds 7
    FLAGOS_GRAPHS=auto python -m tests.bench.gpu.eager --checked 24
    FLAGOS_FLAGGEMS=auto FLAGOS_PACK=bert.flagospack python -m tests.bench.gpu.eager --models bert-train
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.gpu.workloads import WORKLOADS
from tests.bench.timing import Measured, Spread, geometric_mean, measure, seconds_of

MEASURED = [name for name in WORKLOADS if name != "smoke"]


def both(
    name: str, devices: list[str], rounds: int, seconds: float, checked: int
) -> dict[str, Any]:
    """A model on both devices, in this process."""
    import torch
    from torch.testing._internal.common_utils import DeterministicGuard

    modules = {device: torch.get_device_module(device) for device in devices}
    steps, losses = {}, {}
    # Not `warn_only`, with which torch's flash attention adds up gradients in any order.
    with DeterministicGuard(True):
        for device in devices:
            torch.manual_seed(0)
            steps[device] = WORKLOADS[name](device)
            losses[device] = [steps[device]().float().cpu().item() for _ in range(checked)]
    reference = devices[0]

    def timed(device: str, times: int) -> float:
        def work() -> None:
            for _ in range(times):
                steps[device]()

        return seconds_of(work, modules[device].synchronize)

    for device in devices:
        timed(device, 2)
    times = max(1, round(seconds / timed(reference, 1)))
    has_peaks = all(hasattr(module, "reset_peak_memory_stats") for module in modules.values())
    peaks = {}
    for device in devices if has_peaks else ():
        modules[device].reset_peak_memory_stats()
        timed(device, 2)
        peaks[device] = modules[device].max_memory_allocated()
    found = measure(
        {device: lambda d=device: timed(d, times) / times for device in devices}, rounds
    )
    told: dict[str, Any] = {
        "steps_a_round": times,
        "rounds": rounds,
        "time": found.to_json(),
        "samples": found.samples,
        "losses": losses,
        "peaks": peaks,
    }
    return told | counted() if "flagos" in devices else told


def some(names: list[str], devices: list[str], rounds: int, seconds: float, checked: int) -> None:
    """Print for each model what `both` tells, or the error that ended it, as a line of JSON."""
    import torch

    import flagos

    for name in names:
        flagos.reset_counters()
        told: dict[str, Any] | str
        try:
            told = both(name, devices, rounds, seconds, checked)
        except Exception:
            told = traceback.format_exc()[-1500:]
        print(json.dumps(told), flush=True)
        gc.collect()
        for module in map(torch.get_device_module, devices):
            if hasattr(module, "empty_cache"):
                module.empty_cache()


def counted() -> dict[str, Any]:
    """What flagos has counted in this process: calls, fallbacks by operator, replays from a pack, and what automatic
    graphs did."""
    import torch

    import torch_fl
    from torch_fl import replay

    operators = torch_fl.counters()
    return {
        "calls": sum(one["calls"] for one in operators.values()),
        "fallbacks": {op: one["fallbacks"] for op, one in operators.items() if one["fallbacks"]},
        "packed_replays": sum(one.packed_replays for one in replay.statistics().values()),
        "graphs": torch.flagos.graphs.counts() if torch.flagos.graphs.is_auto() else None,
    }


def compare(
    names: list[str],
    rounds: int,
    seconds: float,
    devices: str = "cuda,flagos",
    limit: float = 300,
    checked: int = 3,
    **variables: str,
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each model with what `both` told of it, or why it failed. No model takes longer than `limit` seconds."""
    command = [sys.executable, "-m", "tests.bench.gpu.eager", "some", "--device-pair", devices]
    command += ["--rounds", str(rounds), "--seconds", str(seconds), "--checked", str(checked)]
    environment = {
        **os.environ,
        "PYTHONWARNINGS": "ignore",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        **variables,
    }
    left = list(names)
    while left:
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [*command, "--models", ",".join(left)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            ended = False
            while left and not ended:
                late = threading.Timer(limit, process.kill)
                late.start()
                told = process.stdout.readline()
                late.cancel()
                ended = not told
                name = left.pop(0)
                if ended:
                    status = process.wait()
                    errors.seek(0)
                    yield name, f"status {status}: {errors.read().strip()[-1500:]}"
                else:
                    yield name, json.loads(told)


def ratios(told: dict[str, Any]) -> tuple[Spread, float | None]:
    """Of the times, round by round, and of the peaks of memory: the second side over the first."""
    times = Measured(told["samples"])
    first, second = times.samples
    peaks = told["peaks"]
    return times.ratio(second), peaks[second] / peaks[first] if peaks and peaks[first] else None


def line(name: str, told: dict[str, Any]) -> str:
    """A model, for people."""
    ratio, peak = ratios(told)
    times = " and ".join(
        f"{device} {1e3 * one['median']:.2f} ms" for device, one in told["time"]["sides"].items()
    )
    first, second = told["losses"].values()
    return (
        f"{name}: {times}, {ratio.shown(3)}; peak memory {'not told' if peak is None else f'{peak:.3f}'}; "
        f"losses {'equal' if first == second else f'DIFFER: {first} {second}'}; fallbacks {told.get('fallbacks')}"
        f"{followed(told.get('graphs'))}"
    )


def followed(graphs: dict[str, int] | None) -> str:
    """How many calls automatic graphs followed, for people."""
    if not graphs:
        return ""
    launches = max(1, graphs["launches of graphs"])
    return (
        f"; graphs followed {graphs['followed']} of {graphs['calls']} calls, "
        f"{graphs['calls launched by graphs'] / launches:.0f} by each launch"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("part", nargs="?", choices=["all", "some"], default="all", help=argparse.SUPPRESS)
    add("--models", default=",".join(MEASURED), help="default: %(default)s")
    add("--rounds", type=int, default=7, help="default: %(default)s")
    add("--seconds", type=float, default=0.4, help="of a side's round (default: %(default)s)")
    add(
        "--checked",
        type=int,
        default=3,
        help="steps whose losses are compared (default: %(default)s)",
    )
    add("--device-pair", default="cuda,flagos", help="default: %(default)s")
    add("--json", type=Path)
    options = parser.parse_args()
    names = options.models.split(",")
    if unknown := set(names) - WORKLOADS.keys():
        parser.error(
            f"{', '.join(sorted(unknown))}: no model of that name; there are {', '.join(WORKLOADS)}"
        )
    devices = options.device_pair.split(",")
    if options.part == "some":
        some(names, devices, options.rounds, options.seconds, options.checked)
        return 0
    failed, numbers = [], {}
    began = time.monotonic()
    compared = compare(
        names, options.rounds, options.seconds, options.device_pair, checked=options.checked
    )
    for name, told in compared:
        if isinstance(told, str):
            failed.append(name)
            print(f"{name}: FAILED: {told}", flush=True)
            continue
        numbers[name] = told
        first, second = told["losses"].values()
        if first != second:
            failed.append(name)
        print(f"{line(name, told)} (after {time.monotonic() - began:.0f} s)", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(numbers, indent=1))
    medians = {name: ratios(told)[0].median for name, told in numbers.items()}
    if medians:
        worst = max(medians, key=lambda name: medians[name])
        mean = geometric_mean(list(medians.values()))
        print(
            f"geometric mean of {len(medians)}: {mean:.3f}; the most: {worst} {medians[worst]:.3f}"
        )
    print(f"FAILED: {', '.join(failed)}" if failed else "OK")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

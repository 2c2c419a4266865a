"""The host's cost of a launch: Triton's `kernel[grid](...)` and FlagGems' `LibEntry`, theirs and from Rust.

    python -m tests.bench.launch [--rounds N] [--iterations N] [--json FILE]

Over a simulated driver whose launches do nothing, so that what is left is the way to it. Both sides run
turn and turn about in one process, in processor time. FlagGems is measured where it is installed.
"""

from __future__ import annotations

import argparse
import json
import operator
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adapters.torch.tests.launcher import simulated
from tests.bench.machine import cores, processor, versions
from tests.bench.timing import Measured, lines, measure


def processor_nanoseconds(call: Callable[[], Any], iterations: int) -> float:
    """Mean processor time of one call: nothing here waits, and others may use the machine."""
    start = time.thread_time_ns()
    for _ in range(iterations):
        call()
    return (time.thread_time_ns() - start) / iterations


def calls(kernels: Any, entry: Any) -> dict[str, Callable[[], Any]]:
    """The launches, by name."""
    import torch

    x, y, out = (simulated.tensor(64, torch.float32) for _ in range(3))
    found = {
        "Triton, 3 tensors": lambda: kernels.add[(3,)](x, y, out, 48, BLOCK=64),
        "Triton, a grid function": lambda: kernels.add[lambda meta: (meta["n"],)](
            x, y, out, 48, BLOCK=64
        ),
        "Triton, 9 parameters": lambda: kernels.many[(1,)](out, 1, 16, 3, 0.5, True, 7, x, True),
    }
    if entry is not None:
        found |= {
            "LibEntry, 3 tensors": lambda: entry[(3,)](x, y, out, 48, BLOCK=64),
            "LibEntry, a grid function": lambda: entry[lambda meta: (meta["n"],)](
                x, y, out, 48, BLOCK=64
            ),
        }
    return found


def measure_all(rounds: int, iterations: int) -> dict[str, Measured]:
    """Nanoseconds of each call on both sides, and the ratios of the rounds."""
    import torch_fl.launcher as launcher

    driver = simulated.active()
    # Builtins, as torch's are.
    driver.get_current_device, driver.get_current_stream = int, operator.index
    with ExitStack() as stack:
        entry = None
        from adapters.torch.tests.launcher import kernels

        if find_spec("flag_gems") is not None:
            stack.enter_context(simulated.flaggems())
            from flag_gems.utils.libentry import LibEntry

            entry = LibEntry(kernels.add)
        results: dict[str, Measured] = {}
        for name, call in calls(kernels, entry).items():

            def theirs(call: Callable[[], Any] = call) -> float:
                launcher.uninstall()
                call()
                return processor_nanoseconds(call, iterations)

            def ours(call: Callable[[], Any] = call) -> float:
                launcher.install()
                for _ in range(4):
                    call()
                before = launcher.statistics()["native"]
                spent = processor_nanoseconds(call, iterations)
                assert launcher.statistics()["native"] == before + iterations, launcher.statistics()
                return spent

            theirs()  # compiles
            results[name] = measure({"rust": ours, "python": theirs}, rounds, collected=False)
        launcher.install()
    return results


def reading(rounds: int, iterations: int) -> Measured:
    """Nanoseconds for address and dtype of a tensor: through torch's C functions, and through Python."""
    import torch

    from flagos import _core

    tensor = simulated.tensor(64, torch.float32)
    sides = {
        "C": lambda: processor_nanoseconds(lambda: _core.launch_read_tensor(tensor), iterations),
        "Python": lambda: processor_nanoseconds(
            lambda: (tensor.data_ptr(), tensor.dtype), iterations
        ),
    }
    return measure(sides, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    if reason := simulated.unavailable():
        raise SystemExit(f"nothing was measured: {reason}")
    results = measure_all(options.rounds, options.iterations)
    read = reading(options.rounds, options.iterations)
    print(*lines(results, "µs", "launch", 1e-3, 2), sep="\n")
    print(*lines({"a tensor's address and dtype": read}, "ns", digits=0), sep="\n")
    if options.json:
        machine = {"processor": processor(), "cores": cores()}
        machine |= versions("torch", "triton", "flag_gems", "flagos")
        figures = {"machine": machine, "tensors": read.to_json()}
        figures["launches"] = {name: one.to_json() for name, one in results.items()}
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

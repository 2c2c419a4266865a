"""The overhead of the flagos device over the CPU on the host vendor: `make bench`.

    python -m tests.bench.overhead [--rounds N] [--iterations N] [--json] [--write]

Operators on 8×8 tensors from Python and from C++, the allocator, `import torch` with and without the
plugin, and `flagos devices`. Prints ratios; asserts nothing. `--write` enters the report
into docs/benchmarks/host.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import history, machine
from tests.bench.timing import (
    Measured,
    geometric_mean,
    measure,
    nanoseconds_per_call,
    seconds_of_command,
)

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Overhead:
    """Cost of one operator on both devices, in nanoseconds per call."""

    operator: str
    measured: Measured

    @property
    def ratio(self) -> float:
        """Median on flagos over median on the CPU."""
        return self.measured.spread("flagos").median / self.measured.spread("cpu").median


def from_python(rounds: int, iterations: int) -> list[Overhead]:
    """Operator overhead seen from Python, without autograd."""
    import torch

    from tests.bench import operators

    measured = []
    with torch.no_grad():
        on_cpu, on_flagos = operators.calls("cpu"), operators.calls("flagos")
        for name in on_cpu:
            sides = {
                "cpu": partial(nanoseconds_per_call, on_cpu[name], iterations),
                "flagos": partial(nanoseconds_per_call, on_flagos[name], iterations),
            }
            measured.append(Overhead(name, measure(sides, rounds)))
    return measured


def from_cpp(rounds: int, iterations: int) -> list[Overhead] | None:
    """Operator overhead seen from C++, or None where there is no C++ compiler."""
    from tests.bench import cpp_loop, operators

    loop = cpp_loop.load()
    if loop is None:
        return None
    measured = []
    for name in operators.calls("cpu"):
        sides = {device: partial(loop, name, device, iterations) for device in ("cpu", "flagos")}
        measured.append(Overhead(name, measure(sides, rounds)))
    return measured


def import_times(rounds: int) -> Measured:
    """Seconds that a new process needs for `import torch`, with and without the plugin."""
    command = [sys.executable, "-c", "import torch"]
    environment = {**os.environ}
    without = {**environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return measure(
        {
            "import torch, without the plugin": lambda: seconds_of_command(command, without),
            "import torch, with the plugin": lambda: seconds_of_command(command, environment),
        },
        rounds,
    )


def command_times(rounds: int) -> Measured:
    """Seconds of `flagos devices`, next to those of a Python that does nothing."""
    flagos = shutil.which("flagos", path=str(Path(sys.executable).parent)) or "flagos"
    return measure(
        {
            "flagos devices": lambda: seconds_of_command([flagos, "devices"], os.environ),
            "python -c pass": lambda: seconds_of_command(
                [sys.executable, "-c", "pass"], os.environ
            ),
        },
        rounds,
    )


def allocator() -> list[str]:
    """The lines that the Rust allocator's own bench prints; none when cargo is not installed."""
    if shutil.which("cargo") is None:
        return []
    command = ["cargo", "bench", "-p", "flagos-core", "--locked", "--bench", "allocator"]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return run.stdout.strip().splitlines()


def table(rows: Iterable[tuple[str, ...]], header: tuple[str, ...]) -> Iterator[str]:
    """A Markdown table; every column but the first is aligned right."""
    lines = [header, *rows]
    widths = [max(len(row[column]) for row in lines) for column in range(len(header))]

    def laid_out(row: tuple[str, ...]) -> str:
        first, *others = row
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        return "| " + " | ".join(cells) + " |"

    yield laid_out(header)
    yield (
        "|"
        + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
        + "|"
    )
    yield from map(laid_out, lines[1:])


def overhead_section(title: str, measured: list[Overhead]) -> Iterator[str]:
    """One table of operators with its means."""
    from tests.bench.operators import VIEWS

    yield f"### {title}"
    yield ""
    yield from table(
        (
            (
                item.operator,
                *(spread.in_order() for spread in item.measured.spreads().values()),
                f"{item.ratio:.2f}",
            )
            for item in measured
        ),
        ("operator", "cpu, ns", "flagos, ns", "ratio"),
    )
    views = [item.ratio for item in measured if item.operator in VIEWS]
    yield ""
    yield (
        f"Geometric mean of the ratios: **{geometric_mean(item.ratio for item in measured):.2f}**; "
        f"of the views alone: **{geometric_mean(views):.2f}**."
    )
    yield ""


def seconds_section(title: str, measured: Measured) -> Iterator[str]:
    """One table of whole commands."""
    yield f"### {title}"
    yield ""
    yield from table(
        (
            (name, f"{spread.least:.3f} / {spread.median:.3f} / {spread.greatest:.3f}")
            for name, spread in measured.spreads().items()
        ),
        ("what", "seconds"),
    )
    yield ""


@dataclass(frozen=True)
class Report:
    """Everything that was measured."""

    rounds: int
    iterations: int
    python: list[Overhead]
    cpp: list[Overhead] | None
    allocator: list[str]
    imports: Measured
    commands: Measured

    def to_json(self) -> dict[str, Any]:
        """Everything that was measured, in the form of `Measured`."""

        def operators(found: list[Overhead] | None) -> Any:
            return found and {item.operator: item.measured.to_json() for item in found}

        return {
            "rounds": self.rounds,
            "iterations": self.iterations,
            "python": operators(self.python),
            "cpp": operators(self.cpp),
            "allocator": self.allocator,
            "imports": self.imports.to_json(),
            "commands": self.commands.to_json(),
        }

    def markdown(self) -> str:
        """The report as it is kept in docs/benchmarks/host.md."""
        lines = [
            f"## {datetime.date.today()}: overhead",
            "",
            machine.setting("flagos", "torch-fl", "torch", "numpy"),
            "",
            "Made by `make bench`. 8×8 float32, no autograd, one thread within operators; "
            f"{self.rounds} interleaved rounds of "
            f"{self.iterations} calls; least / median / greatest of the rounds; ratio of medians.",
            "",
            *overhead_section("Operators from Python", self.python),
        ]
        if self.cpp is None:
            lines += ["### Operators from C++", "", "Not measured: there is no C++ compiler.", ""]
        else:
            lines += overhead_section("Operators from C++", self.cpp)
        lines += ["### Allocator", ""]
        if self.allocator:
            lines += ["```text", *self.allocator, "```", ""]
        else:
            lines += ["Not measured: cargo is not installed.", ""]
        without, with_plugin = self.imports.spreads().values()
        lines += seconds_section("Import", self.imports)
        lines += [
            f"Difference of the medians: **{with_plugin.median - without.median:+.3f} s**.",
            "",
            *seconds_section("Commands", self.commands),
        ]
        return "\n".join(lines).rstrip() + "\n"


def measure_all(rounds: int, iterations: int) -> Report:
    """Runs every measurement.

    One thread within operators: waking a second one costs more than these operators do, and as much
    on one device as on the other.
    """
    import torch

    torch.set_num_threads(1)
    return Report(
        rounds=rounds,
        iterations=iterations,
        python=from_python(rounds, iterations),
        cpp=from_cpp(rounds, iterations),
        imports=import_times(max(rounds // 2, 3)),
        commands=command_times(max(rounds // 2, 3)),
        allocator=allocator(),
    )


def main() -> int:
    """Measures, prints, and with --write keeps the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default: 15)")
    parser.add_argument(
        "--iterations", type=int, default=20_000, help="calls in a round (default: 20000)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the report")
    parser.add_argument("--write", action="store_true", help="keep the report in docs/benchmarks")
    options = parser.parse_args()

    report = measure_all(options.rounds, options.iterations)
    print(json.dumps(report.to_json(), indent=2) if options.json else report.markdown())
    if options.write:
        path = history.keep("host", report.markdown())
        print(f"written to {path.relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

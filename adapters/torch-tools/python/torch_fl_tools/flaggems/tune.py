"""Measures FlagGems' kernels against the native ones, by operator and class of shapes.

    flagos tune [--ops PATTERNS] [--rounds N] [--seconds N] [--resume] [--out FILE] [--json]

Both kernels are called on flagos in turns. The time of a call lasts until the device has finished it, over many
calls in a row. Calls of the class `small` are bound by the host, calls of the class `large` by the device. The table
has the ratio of the medians, which the plan reads. An overload without a call in this command is not measured, and so
not routed by default. Overloads that are verified STRICT come first. The table is written even if `--seconds` run out,
and the remaining overloads keep their ratios from the earlier table. During a run and after an interrupt the results
so far are in FILE.partial beside the table, which stays as it was; `--resume` continues from there, or from the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch

import flagos
from flagos.cli import output_files
from torch_fl.flaggems import implementations, table_file, tables
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems.command import at_least_one, not_negative, one_interrupt
from torch_fl_tools.flaggems.measured_calls import Call, calls


def _declined(overload: str) -> int:
    return flagos.counters().get(f"aten::{overload}", {"fallbacks": 0})["fallbacks"]


def _seconds(call: Call, iterations: int) -> float:
    torch.accelerator.synchronize()
    start = time.perf_counter()
    for _ in range(iterations):
        call()
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) / iterations


@dataclass(frozen=True)
class Row:
    """One measurement, or why there is none."""

    shape: str  # the class; `all` where no time was left
    ratio: float | None = None
    error: str = ""


def measure(
    pattern: str = "*",
    rounds: int = 7,
    progress: Callable[[str, Row], None] | None = None,
    seconds: float = float("inf"),
    known: dict[str, dict[str, float]] | None = None,
    on_progress: Callable[[dict[str, dict[str, float]]], None] | None = None,
    classes: tuple[tuple[str, int], ...] = (("small", 200), ("large", 20)),
) -> dict[str, dict[str, float]]:
    """The ratio of FlagGems' time to the native one, for each overload and class.

    Overloads that are verified STRICT come first, and those that are known to be wrong are left out. `known` are ratios
    that are taken as they are. No overload begins after `seconds`, and an interrupt (KeyboardInterrupt) ends it early.
    `on_progress` gets the ratios so far after each overload. `classes` are those of `calls`, with how many in a row.
    """
    began = time.monotonic()
    found = dict(known or {})
    made = {shape: calls(shape) for shape, _ in classes}
    verdicts = tables.verdicts()
    names = [
        name
        for name in made[classes[0][0]]
        if matches(name, pattern)
        and name in implementations.registered()
        and implementations.usable(name)
        and not implementations.failed(name)
        and name not in found
    ]
    names.sort(
        key=lambda name: name not in verdicts or verdicts[name]["verdict"] != table_file.STRICT
    )
    on_row = progress or (lambda name, row: None)
    try:
        for index, name in enumerate(names):
            if time.monotonic() - began > seconds:
                on_row(f"{len(names) - index} overloads", Row("all", error="no time left"))
                break
            ratios = {}
            for shape, iterations in classes:
                try:
                    ratios[shape] = _ratio(name, made[shape][name], rounds, iterations)
                    on_row(name, Row(shape, ratios[shape]))
                except Exception as error:
                    # Reported. Without a measurement the overload is not routed by default.
                    message = f"{type(error).__name__}: {error}"[:200]
                    on_row(name, Row(shape, error=message))
                    break
            # A measurement of one class only is dropped.
            if len(ratios) == len(classes):
                found[name] = {shape: round(ratio, 3) for shape, ratio in ratios.items()}
                if on_progress is not None:
                    on_progress(found)
    except KeyboardInterrupt:
        print("interrupted: the measurements so far are saved", file=sys.stderr)
    return found


def _ratio(name: str, call: Call, rounds: int, iterations: int) -> float:
    """The median time of FlagGems' calls over that of the native ones. Raises UnsupportedError for a declined call."""
    times: dict[str, list[float]] = {"vendor": [], implementations.BACKEND: []}
    declined = _declined(name)
    implementations.function(name)  # serves, whether it was verified or not
    with torch.no_grad():
        for turn in range(rounds + 1):
            for selector in times if turn % 2 else reversed(times):
                with flagos.route({f"aten::{name}": selector}):
                    for _ in range(5):  # compiles and records anew
                        call()
                    spent = _seconds(call, iterations)
                if turn:
                    times[selector].append(spent)
    if _declined(name) > declined:
        raise flagos.UnsupportedError("FlagGems declines the call")
    return statistics.median(times[implementations.BACKEND]) / statistics.median(times["vendor"])


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos tune`."""
    parser = argparse.ArgumentParser(
        prog="flagos tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ops", default="*", help="shell patterns of overloads: 'add*,mm'")
    parser.add_argument(
        "--rounds", type=at_least_one, default=7, help="turns of both kernels (default: 7)"
    )
    parser.add_argument(
        "--seconds", type=not_negative, default=float("inf"), help="stop after this time"
    )
    parser.add_argument("--resume", action="store_true", help="continue the existing table")
    parser.add_argument(
        "-o", "--out", type=Path, help="the table (default: the file that the plan reads)"
    )
    parser.add_argument("--json", action="store_true", help="also print the table")
    options = parser.parse_args(arguments)
    if options.out is not None:
        output_files.require_writable(options.out, "table.json")
    if not any(implementations.usable(name) for name in implementations.registered()):
        reason = (
            implementations.missing()
            if not implementations.registered()
            else implementations.why_unusable()
        )
        print(f"error: FlagGems cannot be used: {reason}", file=sys.stderr)
        return 1
    kind = "speed"
    path = tables.path_for(kind, options.out, options.ops == "*")

    in_vain: set[str] = set()
    complete = True

    def on_row(name: str, row: Row) -> None:
        nonlocal complete
        if row.shape == "all":
            complete = False
        elif row.ratio is None:
            in_vain.add(name)
        what = row.error if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{name} ({row.shape}): {what}", file=sys.stderr, flush=True)

    def on_progress(measured: dict[str, dict[str, float]]) -> None:
        if path is not None:
            table_file.write(table_file.partial(path), tables.table(measured))

    with one_interrupt() as interrupted:
        try:
            known = tables.continued(path, kind) if options.resume else {}
            with redirect_stdout(sys.stderr):  # FlagGems prints while it is imported
                measured = measure(
                    options.ops, options.rounds, on_row, options.seconds, known, on_progress
                )
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        if interrupted():
            table = tables.keep_partial(path, measured)
        else:
            table = tables.keep(path, measured, {*measured, *in_vain}, complete, kind)
    if options.json:
        print(json.dumps(table))
    else:
        fast = sum(max(ratios.values()) <= tables.AS_FAST for ratios in measured.values())
        print(f"{len(measured)} measured, {fast} of them no slower than the native kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())

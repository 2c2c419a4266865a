"""Measures FlagGems' kernels against the native ones, by operator and class of calls.

    flagos tune [--ops PATTERNS] [--record FILE ...] [--no-records] [--rounds N] [--seconds N] [--resume] [--out FILE]
                [--json]

Both kernels are called on flagos in turns, and replayed as in a program. A call's time on the host is that of queueing
it, and on the device that of its kernels. Calls are one class if they have the same dtypes, layouts and magnitudes of
sizes, and work along the same dimensions; below 16384 elements all sizes are one class. `FLAGOS_FLAGGEMS=auto` has
FlagGems serve the classes in which every measured call was no slower on the host and on the device, and faster on one
of them, and nothing that was not measured.

Measured are a small and a large call of some overloads, and of the recorded calls (`flagos record`) of overloads that
are verified STRICT up to three of each class: the most frequent, the smallest and the largest. The records that flagos
ships are used unless others are named. Overloads that are STRICT come first. The table is written even if `--seconds`
run out, and the remaining overloads keep their times from the earlier table. During a run and after an interrupt the
results so far are in FILE.partial beside the table, which stays as it was; `--resume` continues from there, or from the
table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import flagos
from flagos.cli import output_files
from torch_fl import python_kernels
from torch_fl.flaggems import implementations, table_file, tables
from torch_fl.flaggems.table_file import ClassSpeed, Speed, Times
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems import timing
from torch_fl_tools.flaggems.command import at_least_one, not_negative, one_interrupt
from torch_fl_tools.flaggems.measured_calls import calls
from torch_fl_tools.flaggems.recorded.inputs import Inputs
from torch_fl_tools.flaggems.recorded.zones import Zones
from torch_fl_tools.records import facts, files

_WARM = 5  # calls that compile, record, and are replayed for the first time
_SHAPES = ("small", "large")

Speeds = dict[str, Speed]
"""By overload."""


@dataclass(frozen=True)
class Candidate:
    """A call that may be measured: its class, and what makes its arguments."""

    number: int
    words: str
    label: str
    make: Callable[[], Callable[[], Any]]


@dataclass(frozen=True)
class Row:
    """One measurement, or why there is none."""

    what: str  # the class and the call; `all` where no time was left
    times: Times | None = None
    error: str = ""


def measure(
    pattern: str = "*",
    rounds: int = 5,
    progress: Callable[[str, Row], None] | None = None,
    seconds: float = float("inf"),
    known: Speeds | None = None,
    on_progress: Callable[[Speeds], None] | None = None,
    recorded: Iterable[facts.Call] = (),
    shapes: Iterable[str] = _SHAPES,
) -> Speeds:
    """The times of FlagGems' kernels and of the native ones, for each overload and class of calls.

    Overloads that are verified STRICT come first, and those that are known to be wrong are left out. `known` are times
    that are taken as they are. No call is measured after `seconds`, and an interrupt (KeyboardInterrupt) ends it early.
    `on_progress` gets the times so far after each overload. `recorded` are calls of programs, and `shapes` those of
    `calls`.
    """
    began = time.monotonic()
    found = dict(known or {})
    candidates = _candidates(pattern, recorded, shapes)
    verdicts = tables.verdicts()
    names = [name for name in candidates if name not in found]
    names.sort(
        key=lambda name: name not in verdicts or verdicts[name]["verdict"] != table_file.STRICT
    )
    on_row = progress or (lambda name, row: None)
    try:
        for index, name in enumerate(names):
            speeds: Speed = {}
            for one in candidates[name]:
                if time.monotonic() - began > seconds:
                    on_row(f"{len(names) - index} overloads", Row("all", error="no time left"))
                    return found
                try:
                    times = _times(name, one.make(), rounds)
                except Exception as error:
                    # Reported. A class without a measurement is not served by default.
                    message = f"{type(error).__name__}: {error}"[:200]
                    on_row(name, Row(f"[{one.words}] {one.label}", error=message))
                    continue
                number = f"{one.number & (2**64 - 1):x}"
                of_class = speeds.setdefault(one.words, ClassSpeed(number=number, calls={}))
                of_class["calls"][one.label] = times
                on_row(name, Row(f"[{one.words}] {one.label}", times))
            if speeds:
                found[name] = speeds
                if on_progress is not None:
                    on_progress(found)
    except KeyboardInterrupt:
        print("interrupted: the measurements so far are saved", file=sys.stderr)
    return found


def _candidates(
    pattern: str, recorded: Iterable[facts.Call], shapes: Iterable[str]
) -> dict[str, list[Candidate]]:
    """The calls to measure, by overload; those with the most recorded calls first."""
    usable = {
        name
        for name in implementations.registered()
        if matches(name, pattern)
        and implementations.usable(name)
        and not implementations.failed(name)
    }
    verdicts = tables.verdicts()
    strict = {n for n in usable if n in verdicts and verdicts[n]["verdict"] == table_file.STRICT}
    counted: dict[str, int] = defaultdict(int)
    classes: dict[str, dict[tuple[int, str], list[facts.Call]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for call in recorded:
        if call.overload in strict and not any(one.on_host for one in call.tensors()):
            number, words = _class_of(call)
            classes[call.overload][number, words].append(call)
            counted[call.overload] += call.count
    found: dict[str, list[Candidate]] = {}
    for name in sorted(classes, key=lambda name: -counted[name]):
        found[name] = [
            Candidate(number, words, str(call), partial(_on_device, call))
            for (number, words), several in classes[name].items()
            for call in _telling(several)
        ]
    for shape in shapes:
        for name, made in calls(shape).items():
            if name in usable:
                number, words = python_kernels.call_class(f"aten::{name}", made.args, made.kwargs)
                one = Candidate(number, words, shape, partial(_same, made))
                found.setdefault(name, []).append(one)
    return found


def _same(call: Callable[[], Any]) -> Callable[[], Any]:
    return call


def _class_of(call: facts.Call) -> tuple[int, str]:
    """The class of a recorded call, whose tensors need no memory for it."""

    def shown(value: Any) -> Any:
        if isinstance(value, facts.TensorFacts):
            return torch.empty_strided(
                value.shape, value.strides, dtype=value.dtype, device=facts.DEVICE
            )
        if isinstance(value, (list, tuple)):
            return [shown(one) for one in value]
        return value

    args = tuple(shown(value) for value in call.args)
    return python_kernels.call_class(
        call.op, args, {name: shown(value) for name, value in call.kwargs.items()}
    )


def _telling(several: list[facts.Call]) -> list[facts.Call]:
    """Of the calls of a class the most frequent, the smallest and the largest."""

    def size(call: facts.Call) -> int:
        return sum(tensor.numel for tensor in call.tensors())

    chosen = (
        max(several, key=lambda call: call.count),
        min(several, key=size),
        max(several, key=size),
    )
    return [call for place, call in enumerate(chosen) if call not in chosen[:place]]


def _on_device(call: facts.Call) -> Callable[[], Any]:
    """A recorded call with arguments on the device."""
    device = torch.device("flagos")
    args, kwargs = Inputs(call, device).make(Zones(device, 0, around=0))
    return partial(python_kernels.require_operator(call.op), *args, **kwargs)


def _declined(overload: str) -> int:
    return flagos.counters().get(f"aten::{overload}", {"fallbacks": 0})["fallbacks"]


def _times(name: str, call: Callable[[], Any], rounds: int) -> Times:
    """The medians of FlagGems' calls and of the native ones. Raises UnsupportedError for a declined call."""
    sides: dict[str, list[tuple[float, float]]] = {implementations.BACKEND: [], "vendor": []}
    declined = _declined(name)
    implementations.function(name)  # serves, whether it was verified or not
    with torch.no_grad():
        for turn in range(rounds + 1):
            for selector in sides if turn % 2 else reversed(sides):
                with flagos.route({f"aten::{name}": selector}):
                    for _ in range(_WARM):
                        call()
                    spent = timing.once(call)
                if turn:
                    sides[selector].append(spent)
    if _declined(name) > declined:
        raise flagos.UnsupportedError("FlagGems declines the call")
    device, host = (
        [
            round(statistics.median(part), 2)
            for part in (list(zip(*several, strict=True))[kind] for several in sides.values())
        ]
        for kind in (0, 1)
    )
    return Times(host=host, device=device)


def _shown(times: Times) -> str:
    (host, native_host), (device, native_device) = times["host"], times["device"]
    return (
        f"host {host:.1f} us (native {native_host:.1f}), device {device:.1f} us (native {native_device:.1f})"
        + (": faster" if tables.is_faster(times) else "")
    )


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos tune`."""
    options = _parser().parse_args(arguments)
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
        if row.what == "all":
            complete = False
        elif row.times is None:
            in_vain.add(name)
        what = row.error if row.times is None else _shown(row.times)
        print(f"{name} {row.what}: {what}", file=sys.stderr, flush=True)

    def on_progress(measured: Speeds) -> None:
        if path is not None:
            table_file.write(table_file.partial(path), tables.table(measured))

    with one_interrupt() as interrupted:
        try:
            paths = options.record or ([] if options.no_records else files.shipped())
            recorded = files.merged(call for path in paths for call in files.read(path))
            known = tables.continued(path, kind) if options.resume else {}
            with redirect_stdout(sys.stderr):  # FlagGems prints while it is imported
                measured = measure(
                    options.ops,
                    options.rounds,
                    on_row,
                    options.seconds,
                    known,
                    on_progress,
                    recorded,
                )
        except (OSError, RuntimeError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        if interrupted():
            table = tables.keep_partial(path, measured)
        else:
            table = tables.keep(path, measured, {*measured, *in_vain}, complete, kind)
    if options.json:
        print(json.dumps(table))
    else:
        fast = sum(bool(tables.faster(speeds)) for speeds in measured.values())
        classes = sum(map(len, measured.values()))
        of_them = sum(len(tables.faster(speeds)) for speeds in measured.values())
        print(
            f"{len(measured)} overloads measured, {fast} of them faster than the native kernels in some class of "
            f"calls: {of_them} of {classes} classes"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flagos tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ops", default="*", help="shell patterns of overloads: 'add*,mm'")
    parser.add_argument(
        "--record",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure the calls of these records (default: those that flagos ships)",
    )
    parser.add_argument("--no-records", action="store_true", help="measure no recorded calls")
    parser.add_argument(
        "--rounds", type=at_least_one, default=5, help="turns of both kernels (default: 5)"
    )
    parser.add_argument(
        "--seconds", type=not_negative, default=float("inf"), help="stop after this time"
    )
    parser.add_argument("--resume", action="store_true", help="continue the existing table")
    parser.add_argument(
        "-o", "--out", type=Path, help="the table (default: the file that the plan reads)"
    )
    parser.add_argument("--json", action="store_true", help="also print the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The command line of `flagos report`."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from flagos.cli import command_line, output_files
from flagos.cli.output import CommandError, print_json
from torch_fl_tools.report import data, page, program

_DESCRIPTION = """\
Runs a program and writes one HTML page about its use of the device: the implementations that served, the time in
operators, fallbacks and declined calls with their reasons, memory over time, the slowest operators and their
alternatives, and the plan's lock. The page needs no network.
"""

_EXAMPLES = """\
examples:
  $ flagos report -- python train.py                      # writes flagos-report.html
  $ flagos report -o ranks.html -- torchrun --nproc-per-node=2 train.py    # a section for each rank
  $ flagos report --json -- python train.py > report.json                  # the data, and no page without -o
  $ flagos report --device-seconds 60 -- python train.py  # kernels of the first minute (NVIDIA, MetaX)

The status is the program's. A program that fails or is killed has a report, too. docs/report.md explains the
measurements and their cost.
"""

_DEFAULT = Path("flagos-report.html")


def main(arguments: list[str]) -> int:
    """Run the command."""
    own, command = command_line.split(arguments)
    options = _parser().parse_args(own)
    if not command:
        raise CommandError(
            "no program is named", "name one behind --: flagos report -- python train.py"
        )
    out: Path | None = options.out
    if out is None and not options.json:
        out = _DEFAULT
    if out is not None:
        output_files.require_writable(out, _DEFAULT.name)
    with tempfile.TemporaryDirectory(prefix="flagos-report-") as folder:
        ended = program.run(command, Path(folder), options.device_seconds, quiet=options.json)
        report = data.gather(Path(folder), command, ended)
    status = ended.status if ended.status >= 0 else 128 - ended.status
    if not report.processes:
        print(_why_nothing(report), file=sys.stderr)
    if out is not None:
        try:
            page.write(out, report)
        except OSError as error:
            raise output_files.cannot_be_written(out, error) from error
        print(f"wrote {out}", file=sys.stderr)
    if options.json:
        print_json(asdict(report))
    return status


def _why_nothing(report: data.Report) -> str:
    """Why no process has a part in the report."""
    if report.processes_cut_short:
        return "a process that loaded flagos ended before it could write what it did on the device"
    if report.processes_without_calls:
        return "the program used no flagos device: it called no operator on it"
    return "the program used no flagos device: it never loaded flagos"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flagos report",
        usage="flagos report [-o FILE] [--json] [--device-seconds N] -- PROGRAM ...",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-o", "--out", type=Path, metavar="FILE", help=f"the page (default: {_DEFAULT})")
    add("--json", action="store_true", help="print the data; the program prints to standard error")
    add(
        "--device-seconds",
        type=_seconds,
        default=5.0,
        metavar="N",
        help="collect the device's kernels for N seconds from its first use on (default: 5; 0: not at all)",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, zero or more")
    return value

"""`flagos ascend triton`: whether triton-ascend can be used with flagos, and programs that use it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from typing import Any

from flagos.cli import command_line
from flagos.cli.output import CommandError, print_check, print_json

VERIFIED = "by simulation only: no Ascend device was available"

DETAILS = """
Looks at the vendor in use, triton-ascend, CANN and the compilers, and makes Triton's driver in a process. Each problem
comes with its next step. The status is 0 if Triton kernels can be launched on the device, without torch_npu.

A program needs no command: with the vendor ascend, `import torch` and `import triton` are enough. After `--` the
command checks all but the driver, sets FLAGOS_VENDOR=ascend unless it is set, and becomes the program.

examples:
  $ flagos ascend triton
  $ flagos ascend triton --json
  $ flagos ascend triton -- python train.py --steps 100
"""


def run(arguments: list[str]) -> int:
    """The command `ascend`. Returns the status."""
    own, program = command_line.split(arguments)
    options = _parser().parse_args(own)
    if not hasattr(options, "timeout"):
        _parser().print_help()
        return 2
    if program is not None:
        return _start(program)
    return _check(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flagos ascend", description="Checks for Ascend devices.")
    commands = parser.add_subparsers(metavar="<command>")
    triton = commands.add_parser(
        "triton",
        help="check whether triton-ascend can be used with flagos",
        description="Checks whether triton-ascend can be used with flagos.",
        usage="flagos ascend triton [-h] [--json] [--timeout SECONDS] [-- PROGRAM ...]",
        epilog=textwrap.dedent(DETAILS).strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    triton.add_argument("--json", action="store_true", help="print one JSON value instead of text")
    triton.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="time limit of the process that makes the driver (default: 120)",
    )
    return parser


def _check(options: argparse.Namespace) -> int:
    from torch_fl_cli.doctor import triton_ascend

    checks = []

    def found(check: Any) -> None:
        checks.append(check)
        if not options.json:
            print_check(check)

    for check in triton_ascend.static():
        found(check)
    if triton_ascend.failed(checks) is None:
        found(triton_ascend.driver(options.timeout))
    problem = triton_ascend.failed(checks)
    if options.json:
        version = next(
            check.data.get("version") for check in checks if check.name == "triton-ascend"
        )
        print_json(
            {
                "usable": problem is None,
                "version": version,
                "way": triton_ascend.way(),
                "verified": VERIFIED,
                "next_step": problem.fix if problem else None,
                "checks": [check.as_dict() for check in checks],
            }
        )
    elif problem is None:
        print(f"\ntriton-ascend can be used with flagos, by {triton_ascend.way()}.")
        print(f"flagos' part was verified {VERIFIED}.")
    else:
        print(f"\ntriton-ascend cannot be used with flagos: {problem.name}: {problem.detail}")
        print(f"next step: {problem.fix}")
    return 0 if problem is None else 1


def _start(program: list[str]) -> int:
    """Becomes the program. Returns only if it cannot."""
    from torch_fl_cli.doctor import triton_ascend

    if not program:
        raise CommandError(
            "no program after `--`", "name one: flagos ascend triton -- python train.py"
        )
    if shutil.which(program[0]) is None:
        raise CommandError(
            f"the program {program[0]} was not found", "name one that is on PATH, or by its path"
        )
    # Before the vendor is asked for, which then is the one that the program will have.
    os.environ.setdefault("FLAGOS_VENDOR", triton_ascend.VENDOR)
    problem = triton_ascend.failed(list(triton_ascend.static()))
    if problem is not None:
        raise CommandError(
            f"triton-ascend cannot be used with flagos: {problem.name}: {problem.detail}",
            problem.fix,
        )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(program[0], program)

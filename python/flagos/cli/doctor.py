"""``flagos doctor``."""

from __future__ import annotations

import argparse

from flagos.cli.output import Commands, add_command, print_check, print_json

DETAILS = """
Every problem comes with its fix. The status is 1 if anything fails. Whatever may crash (torch, the
extension, the device) runs in a process of its own, so this works when they are broken.

examples:
  $ flagos doctor
  $ flagos doctor --json --no-canaries
"""


def add_to(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "doctor", doctor, summary="check the installation", details=DETAILS
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="time limit of each check that runs in a process (default: 120)",
    )
    parser.add_argument(
        "--no-canaries",
        dest="canaries",
        action="store_false",
        help="do not run small computations on the device",
    )


def doctor(options: argparse.Namespace) -> int:
    """Prints every check as it finishes."""
    from flagos.doctor import Status, diagnose, summary, worst

    checks = []
    for check in diagnose(timeout=options.timeout, canaries=options.canaries):
        checks.append(check)
        if not options.json:
            print_check(check)
    status = worst(checks)
    if options.json:
        print_json({"status": status.value, "checks": [check.as_dict() for check in checks]})
    else:
        print(f"\n{summary(checks)}")
    return 1 if status is Status.FAIL else 0

"""``flagos vendor``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from flagos.cli.output import (
    CommandError,
    Commands,
    add_command,
    print_json,
    print_table,
    printable,
)

if TYPE_CHECKING:
    from flagos.vendor_check import Finding, Step, Target

DETAILS = """
`flagos devices` lists the vendors that are found, and why each is used or not.

example:
  $ flagos vendor check build/libchip.so
"""

CHECK = """
Loads a library as flagos does (flagos_vendor.h), opens the vendor, and runs the conformance suite. The vendor's code
runs only in processes of its own, so that a crash, a hang or an exit is a finding like any other.
The status is 0 if nothing failed, 1 if something did, and 2 for a wrong command line.

examples:
  $ flagos vendor check build/libchip.so
  PASS  file         /home/me/chip/build/libchip.so
  PASS  load         with all the libraries that it needs
  ...
  FAIL  copies-arrive
        byte Some(1048575) differs
        fix: it has to be true that bytes are the same after copies to the device, within it,
        and back: see stream_copy, pinned_alloc
  $ flagos vendor check build/libchip.so --only copies-arrive
  $ flagos vendor check chip.toml            # the manifest too
  $ flagos vendor check host --json
  $ flagos vendor check --list
"""

LABELS = {"pass": ("PASS", "32"), "fail": ("FAIL", "31"), "skip": ("SKIP", "33")}


def add_to(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "vendor",
        help="check a vendor: its library, its interface, its conformance",
        description="Checks a vendor.",
        epilog=DETAILS.strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=lambda options: parser.print_help() or 2)
    check = add_command(
        parser.add_subparsers(metavar="<command>"),
        "check",
        check_vendor,
        summary="run the checklist over a vendor's library",
        details=CHECK,
    )
    check.add_argument(
        "vendor",
        nargs="?",
        metavar="LIB|NAME",
        help="a library, a manifest (*.toml), or the name of a vendor that `flagos devices` lists",
    )
    check.add_argument(
        "--only",
        metavar="STEP",
        action="append",
        help="run only the steps whose name is or contains this; may be repeated",
    )
    check.add_argument("--list", action="store_true", help="list the steps without running them")
    check.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="time limit of each process; a vendor that exceeds it counts as hanging (default: 60)",
    )


def seconds(text: str) -> float:
    """A time limit of the command line; its name is in argparse's message."""
    limit = float(text)
    if not 0 < limit < float("inf"):
        raise ValueError(text)
    return limit


def check_vendor(options: argparse.Namespace) -> int:
    """Runs the checklist."""
    from flagos import vendor_check

    try:
        chosen = _chosen(vendor_check.steps(), options.only or [])
        target = None if options.list else _target(options.vendor)
    except CommandError as error:
        # A wrong command line, unlike a vendor that fails.
        if options.json:
            print_json({"error": str(error), "hint": error.hint})
        else:
            print(printable(f"error: {error}\n  fix: {error.hint}"), file=sys.stderr)
        return 2
    if target is None:
        _print_steps(chosen, as_json=options.json)
        return 0
    return _run(target, chosen, timeout=options.timeout, as_json=options.json)


def _chosen(steps: Sequence[Step], patterns: Sequence[str]) -> list[Step]:
    names = [step.name for step in steps]
    chosen = set()
    for pattern in patterns:
        found = {pattern} & set(names) or {name for name in names if pattern in name}
        chosen |= found
        if not found:
            near = get_close_matches(pattern, names, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise CommandError(
                f"no step has `{pattern}` in its name",
                f"{hint}`flagos vendor check --list` shows every step",
            )
    return [step for step in steps if not patterns or step.name in chosen]


def _target(text: str | None) -> Target:
    from flagos import _core
    from flagos.vendor_check import Target

    if text is None:
        raise CommandError(
            "name a library or a vendor", "for example: flagos vendor check build/libchip.so"
        )
    if os.sep in text or text.endswith((".so", ".toml")) or Path(text).exists():
        return Target(text, Path(text))
    sources = {vendor["name"]: vendor["source"] for vendor in _core.vendors()}
    if text not in sources:
        raise CommandError(
            f"there is no vendor `{text}`, nor such a file",
            f"name a library, a manifest, or one of {', '.join(sources)}",
        )
    source = sources[text]
    for missing in _core.missing_vendors():
        if missing["name"] == text:
            raise CommandError(f"{missing['distribution']} is not installed", missing["install"])
    return Target(text, None if source == "built in" else Path(source))


def _print_steps(steps: Sequence[Step], *, as_json: bool) -> None:
    if as_json:
        print_json({"steps": [{"name": step.name, "proves": step.proves} for step in steps]})
    else:
        print_table(("step", "proves that"), [(step.name, step.proves) for step in steps])


def _run(target: Target, chosen: Sequence[Step], *, timeout: float, as_json: bool) -> int:
    from flagos.vendor_check import Status, checklist

    begun = time.monotonic()
    findings: list[Finding] = []
    shown = Progress(max(len(step.name) for step in chosen), silent=as_json)
    for finding in checklist(target, chosen, timeout=timeout, begins=shown.begin):
        findings.append(finding)
        shown.finding(finding)
    counts = Counter(finding.status for finding in findings)
    failed = bool(counts[Status.FAIL])
    if as_json:
        print_json(
            {
                "target": target.name,
                "status": "fail" if failed else "pass",
                "seconds": round(time.monotonic() - begun, 3),
                "steps": [finding.as_dict() for finding in findings],
            }
        )
    else:
        shown.clear()
        print(
            f"\n{target.name}: {counts[Status.PASS]} passed, {counts[Status.FAIL]} failed, "
            f"{counts[Status.SKIP]} skipped in {time.monotonic() - begun:.1f} s"
        )
    return 1 if failed else 0


class Progress:
    """Prints findings as they come, and on a terminal the step that is waited for."""

    def __init__(self, width: int, *, silent: bool) -> None:
        self.width = width
        self.silent = silent
        self.terminal = sys.stdout.isatty() and not silent
        self.colors = self.terminal and "NO_COLOR" not in os.environ

    def begin(self, step: Step) -> None:
        """Shows the step that is waited for."""
        if self.terminal:
            print(f"\r\x1b[K....  {step.name}", end="", flush=True)

    def clear(self) -> None:
        """Takes the step that is waited for away."""
        if self.terminal:
            print("\r\x1b[K", end="", flush=True)

    def finding(self, finding: Finding) -> None:
        """Prints a finding."""
        if self.silent:
            return
        self.clear()
        text, color = LABELS[finding.status.value]
        detail = printable(finding.detail)
        label = f"\x1b[{color}m{text}\x1b[0m" if self.colors else text
        if finding.fix is None:
            print(f"{label}  {finding.step.name:<{self.width}}  {detail}", flush=True)
            return
        print(f"{label}  {finding.step.name}", flush=True)
        print(f"      {detail}\n      fix: {printable(finding.fix)}", flush=True)

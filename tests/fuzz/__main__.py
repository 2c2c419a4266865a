"""The command line: ``python -m tests.fuzz``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from .control import CONTROLS, GRAPH_FAULTS
from .session import Session

_PROGRESS = 10.0  # seconds between two lines
_EXAMPLES = """\
examples:
  python -m tests.fuzz --seconds 600 --json fuzz.json   the programs of ten minutes, from seed 0
  python -m tests.fuzz --seed 5000 --programs 100       those of the seeds 5000 to 5099
  python -m tests.fuzz --program 5017                   one program again: its steps, and what differs
  python -m tests.fuzz --control --programs 20          a broken device: has to report a difference
  python -m tests.fuzz --turns 24 --seconds 600         programs in turns: automatic graphs beside none
  python -m tests.fuzz --turns 24 --control late        broken graphs: has to report a difference

A difference is printed with its seed and the shortest program that shows it, to be saved and run by itself.
What is not called or not compared, and why, is in tests/fuzz/known.py. The exit status is 1 if anything differs.
"""


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Run random programs on the CPU and on the device side by side, and compare all they make.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first program (0)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, metavar="S", help="go on for so long (60)")
    length.add_argument("--programs", type=int, metavar="N", help="run so many programs")
    length.add_argument("--program", type=int, metavar="SEED", help="run one and print its steps")
    parser.add_argument(
        "--control",
        nargs="?",
        const="bits",
        default="",
        choices=[*CONTROLS, *GRAPH_FAULTS],
        help="break the device's side on purpose (bits; of graphs: late, twice)",
    )
    parser.add_argument(
        "--turns",
        type=int,
        default=0,
        metavar="N",
        help="repeat each program, on the device without and with automatic graphs",
    )
    parser.add_argument("--device", default="flagos", help="what is compared with cpu (flagos)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write counts and differences")
    options = parser.parse_args(arguments)
    controls = GRAPH_FAULTS if options.turns else CONTROLS
    if options.control and options.control not in controls:
        how = "with" if options.turns else "without"
        parser.error(f"--control: {how} --turns it is one of {', '.join(controls)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 1 if anything differs."""
    options = _parse(arguments)
    plugin = "" if options.device == "cpu" else "torch_fl"
    session = Session(
        device=options.device, plugin=plugin, control=options.control, turns=options.turns
    )
    started = time.monotonic()
    result = 0.0

    def state() -> str:
        return (
            f"{session.programs} programs, {session.steps} steps, {session.raised} errors on both sides, "
            f"{len(session.findings)} differences, {time.monotonic() - started:.0f} s"
        )

    seed = options.seed if options.program is None else options.program
    count = 1 if options.program is not None else options.programs
    limit = options.seconds if options.seconds is not None else 60.0
    while session.programs < count if count is not None else time.monotonic() - started < limit:
        known = set(session.findings)
        session.run(seed)
        seed += 1
        for signature in session.findings.keys() - known:
            finding = session.findings[signature]
            print(
                f"\nseed {finding.seed}: {signature}",
                *finding.messages,
                finding.script,
                sep="\n",
                flush=True,
            )
        if time.monotonic() - result > _PROGRESS:
            result = time.monotonic()
            print(state(), file=sys.stderr, flush=True)
    session.worker.close()
    print(state())
    for title, counts in (
        ("the CPU differs from itself", session.unsteady),
        ("the CPU alone dies too", session.crashes),
    ):
        if counts:
            listed = ", ".join(f"{name} {times}" for name, times in counts.most_common(12))
            print(f"{title}: {listed}")
    for finding in session.findings.values():
        print(
            f"  {finding.times:4} × {finding.signature} (seed {finding.seed}): {finding.messages[0][:150]}"
        )
    if options.json:
        document = {
            "programs": session.programs,
            "steps": session.steps,
            "calls followed": session.followed,
            "errors on both sides": session.raised,
            "seconds": round(time.monotonic() - started, 1),
            "unsteady": session.unsteady,
            "crashes of the CPU": session.crashes,
            "differences": [asdict(finding) for finding in session.findings.values()],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if session.findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``python -m tests.conformance``."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from . import pool, reference
from .databases import DATABASES, ON_REQUEST, Case, all_cases
from .expectations import Expectations, paths_for
from .report import markdown, terminal
from .verdicts import summarize
from .worker import Checks

_CI_SAMPLES = 6
_CI_ROTATING_CASES = 500
_CI_COMPILED_CASES = 80


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Compare a device with its native device over PyTorch's test databases.",
    )
    parser.add_argument("--ops", default="*", help="comma-separated shell patterns of entry names")
    parser.add_argument("--dtypes", default="all", help="comma-separated dtypes, or 'all'")
    parser.add_argument("--db", default=",".join(DATABASES), help="comma-separated databases")
    parser.add_argument("--variants", default="", help="comma-separated variants (default: all)")
    parser.add_argument("--device", default="flagos")
    parser.add_argument("--reference", default="cpu")
    parser.add_argument(
        "--plugin",
        help="module imported to register the device (default: torch_fl, none for --device cpu)",
    )
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--sample-limit", type=int, default=0, help="samples per variant, 0 = all")
    parser.add_argument("--time-limit", type=float, default=180.0, help="seconds per case")
    parser.add_argument(
        "--close",
        action="store_true",
        help="values within torch's tolerances instead of bit by bit, for other kernels",
    )
    parser.add_argument(
        "--expected",
        action="append",
        default=[],
        metavar="FILE",
        help="known differences of the device, beside those of every device compared with the reference; may be "
        "given several times, and the last file that covers a variant decides",
    )
    parser.add_argument("--ci", action="store_true", help="a sweep of a few minutes")
    parser.add_argument("--ci-seed", type=int, help="which rotating sample --ci takes")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--report", type=Path, help="write the report here")
    parser.add_argument("--from-json", type=Path, help="judge the results of an earlier run again")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    return parser.parse_args(arguments)


def select(options: argparse.Namespace) -> list[Case]:
    """The cases a command line asks for; raises SystemExit for one that asks for nothing."""
    databases = tuple(options.db.split(","))
    known = (*DATABASES, *ON_REQUEST)
    unknown = set(databases) - set(known)
    if unknown:
        raise SystemExit(f"unknown databases {sorted(unknown)}; there are {', '.join(known)}")
    patterns = options.ops.split(",")
    dtypes = options.dtypes.split(",")
    cases = [
        case
        for case in all_cases(databases)
        if any(fnmatchcase(case.name, pattern) for pattern in patterns)
        and (options.dtypes == "all" or case.dtype in dtypes)
    ]
    if options.ci:
        cases = _ci_sample(cases, options.ci_seed)
    if not cases:
        raise SystemExit("no case matches --db, --ops and --dtypes")
    # float32 first: it matters most.
    return sorted(cases, key=lambda case: case.dtype != "float32")


def _ci_sample(cases: list[Case], seed: int) -> list[Case]:
    compiled = [case for case in cases if case.database == "compiled"]
    cases = [case for case in cases if case.database != "compiled"]
    single = [case for case in cases if case.dtype == "float32"]
    others = [case for case in cases if case.dtype != "float32"]
    count = min(_CI_ROTATING_CASES, len(others))
    rotating = random.Random(seed).sample(others, count)
    few = random.Random(seed).sample(compiled, min(_CI_COMPILED_CASES, len(compiled)))
    return single + rotating + few


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0 if nothing unexpected happened."""
    options = _parse(arguments)
    if options.report and options.from_json:
        # The file does not say whether it holds all samples of all cases, nor whether of one run.
        raise SystemExit("--report describes a complete run made now: leave out --from-json")
    if options.ci:
        options.sample_limit = options.sample_limit or _CI_SAMPLES
        if options.ci_seed is None:
            options.ci_seed = int(time.time()) // 86400
        print(f"CI sweep, repeat it with --ci --ci-seed {options.ci_seed}")
    reference.use(options.reference)
    cases = select(options)
    if options.list:
        print("\n".join(str(case) for case in cases))
        return 0
    if options.report and (
        options.close or options.sample_limit or options.variants or len(cases) != len(all_cases())
    ):
        raise SystemExit("--report describes a complete run: leave out what narrows it")
    if options.plugin is None:
        options.plugin = "" if options.device == "cpu" else "torch_fl"
    expectations = Expectations.load(*paths_for(options.reference, options.expected))
    started = time.monotonic()
    results = _earlier(options.from_json) if options.from_json else _run(options, cases)
    results.sort(key=lambda result: (result["database"], result["name"], result["dtype"]))
    complete = options.sample_limit == 0
    summary = summarize(results, expectations, complete=complete)
    seconds = time.monotonic() - started
    if options.json:
        document = {"torch": torch.__version__, "device": options.device, "results": results}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(
            markdown(
                summary,
                expectations,
                device=options.device,
                reference=options.reference,
                torch_version=torch.__version__,
            )
        )
    print(terminal(summary, seconds))
    return 0 if summary.ok else 1


def _earlier(path: Path) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    return results


def _run(options: argparse.Namespace, cases: list[Case]) -> list[dict[str, Any]]:
    checks = Checks(
        options.device,
        options.reference,
        options.plugin,
        options.sample_limit,
        tuple(filter(None, options.variants.split(","))),
        options.close,
        tuple(options.expected),
    )
    results: list[dict[str, Any]] = []
    started = time.monotonic()
    failing = 0
    interactive = sys.stderr.isatty()
    step = 1 if interactive else max(1, len(cases) // 20)
    for result in pool.run(checks, cases, options.jobs, options.time_limit):
        results.append(result)
        failing += bool(result["failures"])
        if len(results) % step == 0 or len(results) == len(cases):
            text = (
                f"{len(results)}/{len(cases)} cases, {failing} failing, "
                f"{time.monotonic() - started:.0f} s"
            )
            if interactive:
                print(f"\r{text}  {result['name'][:40]:40}", end="", file=sys.stderr, flush=True)
            else:
                print(text, file=sys.stderr, flush=True)
    if interactive:
        print(file=sys.stderr)
    return results


if __name__ == "__main__":
    sys.exit(main())

"""The cost of a call through the plan from Python, beside TransformerEngine-FL's manager: `make bench-te`.

    python -m tests.bench.te_calls [--rounds N] [--iterations N] [--json] [--write]

The implementation does nothing, so what is left is the way to it. With `TEFL_PATH` naming a checkout of
TransformerEngine-FL, its own manager and module are measured turn and turn about in the same process.
Prints ratios; asserts nothing. `--write` enters the report into docs/benchmarks/te.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flagos import Operator
from tests.bench import history, machine
from tests.bench.timing import Measured, Spread, measure

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = 139
EIGHT = "1, 2, 3, 4, 5, 6, 7, 8"


def noop(*args: Any) -> None:
    """The implementation: what the way to it is measured with."""


def populate(core: Any, types: Any) -> tuple[Any, Any]:
    """A manager with `OPERATORS` operators that do nothing, and its module."""
    registry = core.OpRegistry()
    manager = core.OpManager(registry)
    manager.ensure_initialized()
    for name in names():
        kind = types.BackendImplKind.DEFAULT
        registry.register_impl(types.OpImpl(name, "default.noop", kind, noop))
    return manager, core.TEFLModule(manager)


def names() -> list[str]:
    """The operators that do nothing."""
    return [f"noop_{n}" for n in range(OPERATORS)]


def ours() -> tuple[Any, Any]:
    """te_fl.core."""
    from te_fl import core
    from te_fl.core import types

    return populate(core, types)


def theirs() -> tuple[Any, Any] | None:
    """TransformerEngine-FL's, from the first checkout of `TEFL_PATH`; `None` without one."""
    checkout = os.environ.get("TEFL_PATH", "").split(os.pathsep)[0]
    if not checkout:
        return None
    version = Path(checkout, "build_tools", "VERSION.txt").read_text().strip()
    site = Path(tempfile.mkdtemp())
    info = site / f"transformer_engine-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: transformer_engine\nVersion: {version}\n"
    )
    (info / "RECORD").write_text("transformer_engine/__init__.py,,\n")
    sys.path[:0] = [checkout, str(site)]
    # Imports without its libraries.
    os.environ["NVTE_PROJECT_BUILDING"] = "1"
    os.environ.setdefault("TEFL_LOG_LEVEL", "ERROR")
    from transformer_engine.plugin import core
    from transformer_engine.plugin.core import types

    return populate(core, types)


def per_call(
    statement: str, scope: dict[str, Any], iterations: int, calls: int = 1
) -> Callable[[], float]:
    """Nanoseconds of one call in `statement`, which makes `calls`; the loop around it included."""
    timer = timeit.Timer(statement, globals=scope)
    return lambda: timer.timeit(iterations) / iterations / calls * 1e9


def single_calls(rounds: int, iterations: int) -> dict[str, Measured]:
    """Nanoseconds of one call, by what is called and by side."""
    sides: dict[str, dict[str, Any]] = {"flagos": {}}
    m, tex = ours()
    sides["flagos"] = {"m": m, "tex": tex}
    other = theirs()
    if other is not None:
        sides["TE-FL"] = {"m": other[0], "tex": other[1]}
    every = ";".join(f"tex.{name}({EIGHT})" for name in names())
    statements = {
        "manager.call(op)": ('m.call("noop_0")', 1),
        "manager.call(op, 8 arguments)": (f'm.call("noop_0", {EIGHT})', 1),
        "tex.op()": ("tex.noop_0()", 1),
        "tex.op(8 arguments)": (f"tex.noop_0({EIGHT})", 1),
        f"{OPERATORS} operators in turn, 8 arguments": (every, OPERATORS),
        "manager.resolve(op)": ('m.resolve("noop_0")', 1),
    }
    measured: dict[str, Measured] = {}
    for what, (statement, calls) in statements.items():
        # The slower ones need not be repeated as often.
        count = max(1, iterations // calls // (50 if "resolve" in what else 1))
        runs = {side: per_call(statement, scope, count, calls) for side, scope in sides.items()}
        if calls == 1 and "resolve" not in what:
            direct = f"noop({EIGHT})" if "8" in what else "noop()"
            runs["the function itself"] = per_call(direct, {"noop": noop}, count)
        measured[what] = measure(runs, rounds)
    from te_fl.core import with_preference

    inside = per_call("tex.noop_0()", sides["flagos"], iterations)

    def in_region() -> float:
        with with_preference("vendor"):
            tex.noop_0()
            return inside()

    measured["tex.op() in a policy region"] = measure({"flagos": in_region}, rounds)
    offered = Operator("bench::noop")
    offered.offer(noop, impl_id="bench.noop", kind="reference")
    for what, arguments in {"()": "", "(8 arguments)": EIGHT}.items():
        runs = {
            "flagos": per_call(f"op({arguments})", {"op": offered}, iterations),
            "the function itself": per_call(f"noop({arguments})", {"noop": noop}, iterations),
        }
        measured[f"flagos.Operator{what}"] = measure(runs, rounds)
    return measured


def threads(count: int = 4) -> dict[str, Measured]:
    """Million calls a second of all threads together, alone and `count` at once."""
    _, tex = ours()
    op = tex.noop_0
    # A thread has to run for many turns of the interpreter's switch interval.
    iterations, rounds = 1_000_000, 7

    def throughput(function: Callable[[], object], workers: int) -> Callable[[], float]:
        def taken() -> float:
            def work() -> None:
                for _ in range(iterations // workers):
                    function()

            started = [threading.Thread(target=work) for _ in range(workers)]
            begin = time.perf_counter()
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
            return iterations / (time.perf_counter() - begin) / 1e6

        return taken

    return {
        what: measure(
            {"1 thread": throughput(call, 1), f"{count} threads": throughput(call, count)}, rounds
        )
        for what, call in {"tex.op()": op, "the function itself": noop}.items()
    }


def in_rust() -> str | None:
    """The output of `cargo bench -p te-fl`; `None` without cargo."""
    if shutil.which("cargo") is None:
        return None
    command = ["cargo", "bench", "--locked", "-p", "te-fl", "--bench", "resolve"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def spread(value: Spread | None, digits: int = 0) -> str:
    """Least / median / greatest."""
    if value is None:
        return ""
    return f"{value.least:.{digits}f} / {value.median:.{digits}f} / {value.greatest:.{digits}f}"


def report(
    calls: dict[str, Measured],
    scaling: dict[str, Measured],
    rust: str | None,
    options: argparse.Namespace,
) -> str:
    """The report as Markdown."""
    versions = machine.versions("flagos", "te-fl", "torch")
    where = ", ".join(f"{name} {version}" for name, version in versions.items())
    today = datetime.date.today().isoformat()
    lines = [
        f"## {today}: calls on the host",
        "",
        f"{machine.processor()}, {machine.cores()} cores. {where}.",
        "",
        "Made by `make bench-te`: an implementation that does nothing, called through the plan; "
        f"{options.rounds} interleaved rounds of {options.iterations} calls, the loop around them "
        "included; least / median / greatest of the rounds; the ratio is the median of the rounds'. "
        "TE-FL: TransformerEngine-FL's own manager and module, in the same process.",
        "",
        "### One call, ns",
        "",
        "| call | flagos | TE-FL | TE-FL / flagos | the function itself |",
        "|---|--:|--:|--:|--:|",
    ]
    for what, sides in calls.items():
        taken = sides.spreads()
        mine, other = taken["flagos"], taken.get("TE-FL")
        ratio = f"{sides.ratio('TE-FL', 'flagos').median:.1f}" if other is not None else ""
        itself = spread(taken.get("the function itself"))
        lines.append(f"| `{what}` | {spread(mine)} | {spread(other)} | {ratio} | {itself} |")
    lines += ["", "### Threads, million calls a second together", ""]
    lines += ["| call | 1 thread | 4 threads |", "|---|--:|--:|"]
    for what, sides in scaling.items():
        one, several = sides.spreads().values()
        lines.append(f"| `{what}` | {spread(one, 2)} | {spread(several, 2)} |")
    lines += [
        "",
        "The interpreter runs one thread at a time: as many calls together is all there is.",
    ]
    if rust is not None:
        lines += ["", "### In Rust (`cargo bench -p te-fl`)", "", "```text", rust, "```"]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measures, prints, and with --write keeps the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60, help="interleaved rounds (default: 60)")
    parser.add_argument(
        "--iterations", type=int, default=2000, help="calls per round (default: 2000)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the report")
    parser.add_argument("--write", action="store_true", help="keep the report in docs/benchmarks")
    options = parser.parse_args()
    os.environ.setdefault("TEFL_LOG_LEVEL", "ERROR")
    calls = single_calls(options.rounds, options.iterations)
    scaling = threads()
    rust = in_rust()
    text = report(calls, scaling, rust, options)
    if options.json:
        as_data = {
            name: {what: sides.to_json() for what, sides in part.items()}
            for name, part in {"calls": calls, "threads": scaling}.items()
        }
        print(json.dumps({**as_data, "rust": rust}, indent=1))
    else:
        print(text)
    if options.write:
        path = history.keep("te", text)
        print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()

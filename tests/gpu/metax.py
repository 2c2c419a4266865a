"""The vendor metax over NVIDIA's devices, by libraries that forward MACA's calls: beside the vendor cuda.

    python -m tests.gpu.metax [vendor] [opened] [submit] [ddp] [conformance] [suite] [--json FILE]

On an NVIDIA machine, with what `make metax-forwarder` has built into dist/metax_forwarder. Without names every part
runs but `suite`, which takes as long as the adapter's tests; each takes a few minutes at most.

vendor       `flagos vendor check` of both vendors; what is inferred of MACA is tried out
opened       who opened the driver's library, as LD_DEBUG and a preloaded dlopen tell: nobody of flagos under metax.
             Under cuda, the control, flagos' core does
submit       what submitting an operator costs the host under both, in turns; metax may cost 2 % more
ddp          two ranks on two devices train over MCCL, with the losses of cuda over NCCL
conformance  a sample of the operator databases, of which both give the same report
suite        the adapter's tests; ARGS after `--` are pytest's. Tests about the vendor cuda itself are left out

    python -m tests.gpu.metax submit --json dist/metax.json
    python -m tests.gpu.metax suite -- adapters/torch/tests -n 4
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from core.vendors.metax.forwarder.build import FOLDER, environment
from tests.bench.timing import geometric_mean

ROOT = Path(__file__).resolve().parents[2]
VENDORS = ("metax", "cuda")
ALLOWED = 1.02
"""The host's cost under metax, as a multiple of that under cuda."""
_OPENED = re.compile(
    r"file=(libcuda\.so[^ ]*) \[\d+\];\s+(?:dynamically loaded|needed) by (\S+) \[\d+\]"
)
_OURS = re.compile(r"/(flagos|torch_fl|te_fl)/[^/]*\.so|libmcruntime\.so|libmccl\.so")

Arguments = Sequence[str]


def run(
    vendor: str, *arguments: str, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python arguments` under a vendor. Raises RuntimeError, with what it said, where it fails."""
    found = environment() if vendor == "metax" else {"FLAGOS_VENDOR": vendor}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **found, **variables},
        capture_output=True,
        text=True,
    )
    if check and done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise RuntimeError(f"{vendor}: {' '.join(arguments)} ended with {done.returncode}:\n{last}")
    return done


def printed(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON of the last line that a program printed."""
    return json.loads(done.stdout.splitlines()[-1])


def vendor(_: Arguments) -> dict[str, Any]:
    """The checklist of both vendors."""
    found: dict[str, Any] = {}
    for name in VENDORS:
        done = run(
            name, "-m", "flagos", "vendor", "check", name, "--json", "--timeout", "120", check=False
        )
        report = json.loads(done.stdout)
        wrong = {
            step["name"]: step["detail"] for step in report["steps"] if step["status"] == "fail"
        }
        found[name] = {
            "passed": sum(step["status"] == "pass" for step in report["steps"]),
            "failed": wrong,
            # What is inferred is tried out; nothing of CUDA is.
            "declarations": next(
                (step["detail"] for step in report["steps"] if step["name"] == "declarations"), None
            ),
        }
    return {
        **found,
        "ok": not any(found[name]["failed"] for name in VENDORS)
        and found["metax"]["declarations"] is not None,
    }


def opened(_: Arguments) -> dict[str, Any]:
    """Who opened libcuda.so in a program that uses everything."""
    found: dict[str, Any] = {}
    for name in VENDORS:
        preloaded = environment()["LD_PRELOAD"] if name == "metax" else ""
        with tempfile.TemporaryDirectory() as folder:
            done = run(
                name,
                *("-m", "tests.gpu.metax_program", "everything"),
                LD_DEBUG="files",
                LD_DEBUG_OUTPUT=f"{folder}/ld",
                LD_PRELOAD=f"{preloaded}:{FOLDER}/libopens.so".lstrip(":"),
                OPENS_LOG=f"{folder}/opens",
            )
            opens = (Path(folder) / "opens").read_text().splitlines()
            debug = [path.read_text(errors="replace") for path in Path(folder).glob("ld.*")]
        # The linker tells who opened a library first, libopens.so who opened it at all.
        by = {match[2] for text in debug for match in _OPENED.finditer(text)}
        by |= {line.split("\t")[1] for line in opens if "libcuda.so" in line.split("\t")[0]}
        found[name] = {
            **printed(done),
            "opens": len(opens),
            "opened_by": sorted(by),
            "ours": sorted(path for path in by if _OURS.search(path)),
        }
    found["control"] = bool(found["cuda"]["ours"])
    nobody = not found["metax"]["ours"] and bool(found["metax"]["opened_by"])
    return {**found, "ok": nobody and found["control"]}


def submit(_: Arguments) -> dict[str, Any]:
    """The host's cost of an operator on flagos under both vendors, by rounds of whole processes."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in VENDORS}
    for turn in range(4):
        for name in VENDORS if turn % 2 == 0 else VENDORS[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "submit.json"
                run(name, "-m", "tests.bench.gpu.submit", "--rounds", "7", "--json", str(path))
                operators = json.loads(path.read_text())["operators"]
            # Beside cuda in the same process, so that the machine's mood cancels out.
            rounds[name].append(
                {op: row["ratios"]["flagos"]["median"] for op, row in operators.items()}
            )
    names = list(rounds["cuda"][0])
    middle = {
        name: {op: sorted(turn[op] for turn in turns)[len(turns) // 2] for op in names}
        for name, turns in rounds.items()
    }
    ratios = {op: middle["metax"][op] / middle["cuda"][op] for op in names}
    mean = geometric_mean(list(ratios.values()))
    means = {name: geometric_mean(list(middle[name].values())) for name in VENDORS}
    return {
        "operators": ratios,
        "flagos_to_cuda": means,
        "metax_to_cuda": mean,
        "ok": mean <= ALLOWED,
    }


def ddp(_: Arguments) -> dict[str, Any]:
    """Two devices."""
    found: dict[str, Any] = {}
    for name in VENDORS:
        done = run(
            name,
            *("-m", "torch.distributed.run", "--nproc-per-node=2"),
            *("-m", "tests.gpu.metax_program", "ddp"),
            FLAGOS_LOG="info",
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        ranks = sorted((json.loads(line) for line in lines), key=lambda one: int(one["rank"]))
        engines = re.findall(r"engine=\"?(\w+)", done.stdout + done.stderr)
        found[name] = {
            "ranks": len(ranks),
            "engines": sorted(set(engines)),
            "first": ranks[0]["first"],
            "last": ranks[0]["last"],
            "same": all(one["losses"] == ranks[0]["losses"] for one in ranks),
            "losses": ranks[0]["losses"],
        }
    metax, cuda = found["metax"], found["cuda"]
    ok = metax["ranks"] == 2 and metax["same"] and metax["last"] < metax["first"]
    equal = metax.pop("losses") == cuda.pop("losses")
    found["ok"] = ok and equal and metax["engines"] == ["mccl"] and cuda["engines"] == ["nccl"]
    return {**found, "losses_equal": equal}


def conformance(arguments: Arguments) -> dict[str, Any]:
    """The sweep's sample under both; the reports have to be the same."""
    found: dict[str, Any] = {}
    reports = {}
    for name in VENDORS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            sample = ("--ci", *arguments)
            done = run(
                name,
                *("-m", "tests.conformance", "--reference", "cuda", "--device", "flagos"),
                *(*sample, "-j", "8", "--json", str(path)),
                check=False,
            )
            report = json.loads(path.read_text()) if path.exists() else None
            lines = (done.stdout + done.stderr).splitlines()
        unexpected = sorted(
            {line.split(" sample ")[0] for line in lines if line.startswith("FAIL ")}
        )
        found[name] = {"status": done.returncode, "unexpected": unexpected, "said": lines[-3:]}
        reports[name] = _without_times(report)
    same = reports["metax"] is not None and reports["metax"] == reports["cuda"]
    return {**found, "same_report": same, "ok": same and found["metax"]["status"] == 0}


def _without_times(report: Any) -> Any:
    """A report without what differs between two runs of the same."""
    if isinstance(report, dict):
        kept = {
            name: one for name, one in report.items() if not re.search("second|time|date", name)
        }
        return {name: _without_times(one) for name, one in kept.items() if name != "vendor"}
    return [_without_times(one) for one in report] if isinstance(report, list) else report


def outcomes_of(name: str, tests: Sequence[str]) -> dict[str, str]:
    """What became of each test under a vendor. Raises RuntimeError where pytest did not come to its end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "junit.xml"
        chosen = (*tests, "-m", "not cuda", "--vendor", name, f"--junit-xml={path}")
        done = run(name, "-m", "pytest", "-q", *chosen, check=False)
        if not path.exists():
            raise RuntimeError(f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return {
            f"{case.get('classname')}::{case.get('name')}": case[0].tag if len(case) else "passed"
            for case in ElementTree.parse(path).iter("testcase")
        }


def suite(arguments: Arguments) -> dict[str, Any]:
    """The adapter's tests under both at once: the same outcome of each, but of those about the vendor cuda itself."""
    tests = list(arguments) or ["adapters/torch/tests"]
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: outcomes_of(name, tests), VENDORS)
        outcomes = dict(zip(VENDORS, found, strict=True))
    metax, cuda = outcomes["metax"], outcomes["cuda"]
    differ = {
        name: {"metax": metax.get(name), "cuda": cuda.get(name)}
        for name in sorted(metax.keys() | cuda.keys())
        if metax.get(name) != cuda.get(name)
    }
    counts = {
        vendor_: {tag: list(found.values()).count(tag) for tag in sorted(set(found.values()))}
        for vendor_, found in outcomes.items()
    }
    failed = [name for name, tag in metax.items() if tag in ("failure", "error")]
    return {"counts": counts, "differ": differ, "failed": failed, "ok": not differ and not failed}


PARTS: dict[str, Callable[[Arguments], dict[str, Any]]] = {
    part.__name__: part for part in (vendor, opened, submit, ddp, conformance, suite)
}


def main() -> int:
    """Run the parts, also after one that fails; returns 1 if one did."""
    own = sys.argv[1:]
    at = own.index("--") if "--" in own else len(own)
    own, rest = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, help="write the report here")
    options = parser.parse_args(own)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    report: dict[str, Any] = {}
    for name in options.parts or [name for name in PARTS if name != "suite"]:
        begun = time.perf_counter()
        try:
            report[name] = PARTS[name](rest)
        except Exception as error:
            report[name] = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        report[name]["seconds"] = round(time.perf_counter() - begun, 1)
        print(f"{name}: {json.dumps(report[name], indent=1)}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    print({name: "ok" if found["ok"] else "FAILED" for name, found in report.items()})
    return int(not all(found["ok"] for found in report.values()))


if __name__ == "__main__":
    sys.exit(main())

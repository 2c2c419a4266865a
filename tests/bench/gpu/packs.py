"""Kernel packs on a GPU: what they launch, how soon a program starts with one, and `auto` beside torch's own CUDA.

    python -m tests.bench.gpu.packs smoke                         # a pack made here, and the same made as without a GPU
    python -m tests.bench.gpu.packs start [--models NAMES] [--cold] [--turns N]
    python -m tests.bench.gpu.packs auto [--models NAMES] [--rounds N] [--seconds S] [--tune N] [--verify SECONDS]

    smoke  packs a program's calls on this chip and with FLAGOS_VENDOR=host; both must launch the same. The program then
           runs from each, and every replay is compared with FlagGems' own call, bit for bit.
    start  seconds from the start of the process to the end of the first training step, on flagos: native, verified with
           a pack, verified without (with Triton's cache of before, and with an empty one: --cold).
    auto   the time of a step on cuda and on flagos with FLAGOS_FLAGGEMS=auto and a pack made for the model, in turns in
           one process (tests.bench.gpu.eager). With --verify as a user does it who records, verifies and packs: the
           shipped verdicts alone are about the sizes of the shipped records.

What a part writes goes to --folder, where records and packs of before are taken as they are. Ends with 1 if something
failed. `--json FILE` keeps the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.bench.gpu import eager
from tests.bench.gpu.workloads import WORKLOADS
from tests.bench.timing import geometric_mean

COMPARED = [
    "qwen3-train", "bert-train", "gpt2-train", "llama-train", "t5-train", "vit-train", "mlp-train",
    "qwen3-write", "gpt2-write",
]  # fmt: skip
FLAGOS = [sys.executable, "-m", "flagos"]
LOSS_TOLERANCE = 0.02  # relative, of the last of a few steps
VERDICTS = "verdicts.NVIDIA_H200.flaggems-5.0.2.json.gz"

# ---- one process


def one(name: str, steps: int) -> None:
    """Run a model on flagos, and print what came of it as JSON."""
    began = float(os.environ.get("BEGAN", time.time()))
    import torch

    torch.manual_seed(0)
    step = WORKLOADS[name]("flagos")
    losses = []
    first = 0.0
    for _ in range(steps):
        losses.append(step())
        torch.get_device_module("flagos").synchronize()
        first = first or time.time() - began
    from torch_fl import replay

    known = replay.statistics()
    told = {
        "first": first,
        "losses": [x.item() for x in losses],
        **eager.counted(),
        "packed_signatures": sum(one.packed for one in known.values()),
        "declined": {op: list(one.reasons)[:2] for op, one in known.items() if one.reasons},
        "imported": [each for each in ("flag_gems", "triton") if each in sys.modules],
    }
    print(json.dumps(told))


class Failed(Exception):
    """A process ended otherwise than it should."""


def _command(*words: str, limit: float = 560, **variables: str) -> str:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "BEGAN": str(time.time()), **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=limit)
    if done.returncode != 0:
        raise Failed(
            f"{' '.join(words[-6:])}: status {done.returncode}: {done.stderr.strip()[-1500:]}"
        )
    return done.stdout


def run(name: str, steps: int, **variables: str) -> dict[str, Any]:
    """What came of a model on flagos in a process of its own."""
    program = [sys.executable, "-m", "tests.bench.gpu.packs", "one", "--models", name]
    out = _command(*program, "--steps", str(steps), **variables)
    return dict(json.loads(out.splitlines()[-1]))


def recorded(name: str, folder: Path) -> Path:
    """The record of two steps of a model; taken as it is if there is one."""
    record = folder / f"{name}.rec"
    if not record.exists():
        program = [
            sys.executable,
            "-m",
            "tests.bench.gpu.packs",
            "one",
            "--models",
            name,
            "--steps",
            "2",
        ]
        _command(*FLAGOS, "record", "-o", str(record), "--", *program, FLAGOS_FLAGGEMS="off")
    return record


def shipped_table() -> Path:
    """The verdicts that torch_fl ships, which serve for this chip too."""
    found = find_spec("torch_fl")
    assert found is not None and found.origin is not None, "torch_fl is installed"
    return Path(found.origin).with_name("verdicts") / VERDICTS


def verified(names: list[str], folder: Path, seconds: int) -> Path:
    """The shipped verdicts, completed by the calls of these models' records; taken as it is if there is one."""
    table = folder / VERDICTS
    if not table.exists():
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            records = list(pool.map(lambda name: str(recorded(name, folder)), names))
        table.write_bytes(shipped_table().read_bytes())
        limits = ["--seconds", str(seconds), "--each", "60"]
        words = [*FLAGOS, "verify", "--record", *records, "--out", str(table), *limits]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):  # 1: a kernel FAILED
            raise Failed(f"flagos verify: status {done.returncode}: {done.stderr.strip()[-1500:]}")
        told = done.stdout.strip().splitlines()
        wrong = [
            line for line in told if any(f": {word} in" in line for word in ("FAILED", "BASIC"))
        ]
        print(
            "\n".join([*(line[:300] for line in wrong), told[-1] if told else done.stderr[-500:]])
        )
        print(
            f"  verified the calls of {len(names)} models in {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return table


def pack(
    name: str, folder: Path, *options: str, host: bool = False, table: Path | None = None
) -> Path:
    """A pack of what a model calls, by the shipped verdicts or by `table`; taken as it is if there is one."""
    record, made = recorded(name, folder), folder / f"{name}{'.host' if host else ''}.flagospack"
    if not made.exists():
        began = time.monotonic()
        verdicts = str(table or shipped_table())
        variables = {"FLAGOS_VENDOR": "host"} if host else {}
        out = _command(
            *FLAGOS, "pack", "--record", str(record), "-o", str(made), "--verdicts", verdicts, "--json", *options,
            **variables,
        )  # fmt: skip
        told = json.loads(out)
        print(
            f"  {made.name}: {told['calls']} calls of {told['operators']} operators, {told['kernels']} kernels, "
            f"{told['nbytes'] / 1e6:.2f} MB, made in {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return made


def packs(
    names: list[str], folder: Path, *options: str, table: Path | None = None
) -> list[tuple[str, Path | Failed]]:
    """The packs of several models, made at once: `flagos pack` measures one after the other."""

    def made(name: str) -> Path | Failed:
        try:
            return pack(name, folder, *options, table=table)
        except Failed as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        return list(zip(names, pool.map(made, names), strict=True))


# ---- the parts


def _launches(path: Path) -> dict[tuple[str, tuple[int, ...]], Any]:
    """The recordings of a pack, with the programs in place of their numbers."""
    import hashlib

    from torch_fl.flaggems import pack_file

    read = pack_file.read(path)
    found = {}
    for overload in read.header["operators"]:
        for call in read.calls(overload):
            words: list[Any] = list(call.recording)
            for at in call.kernels:
                words[at] = hashlib.sha256(read.image(words[at])).hexdigest()[:12]
            found[overload, call.signature] = words
    return found


def check_smoke(folder: Path) -> int:
    """See `smoke` above."""
    import torch

    chip = torch.cuda.get_device_name(0)
    here = pack("smoke", folder, "--tune", "1", "--no-times")
    there = pack("smoke", folder, "--for", chip, host=True)
    ours, theirs = _launches(here), _launches(there)
    both = ours.keys() & theirs.keys()
    differing = [key for key in both if ours[key] != theirs[key]]
    print(
        f"{chip}: {len(ours)} calls packed here, {len(theirs)} as without a GPU, {len(both)} in both, of which "
        f"{len(differing)} differ"
    )
    for overload, signature in differing[:5]:
        key = (overload, signature)
        print(f"  {overload}: {ours[key]}\n      and {theirs[key]}")
    failures = len(differing) + len(ours.keys() ^ theirs.keys())
    for path in (here, there):
        served = {"FLAGOS_PACK": str(path), "FLAGOS_FLAGGEMS": "verified"}
        told = run("smoke", 4, **served)
        print(
            f"{path.name}: {told['packed_replays']} of {told['calls']} calls replayed from the pack, imported "
            f"{told['imported']}, fallbacks {told['fallbacks']}, refused {told['declined']}"
        )
        failures += told["packed_replays"] == 0 or "flag_gems" in told["imported"]
        compared = run("smoke", 4, **served, FLAGOS_VERIFY_REPLAYS="1")
        same = compared["losses"] == told["losses"]
        print(f"{path.name}: every replay as FlagGems' own call, bit for bit; same results: {same}")
        failures += not same
    altered = folder / "altered.flagospack"
    altered.write_bytes(here.read_bytes()[:-1] + b"x")
    try:
        run("smoke", 1, FLAGOS_PACK=str(altered), FLAGOS_FLAGGEMS="verified")
    except Failed as error:
        failures += "truncated or altered" not in str(error)
    else:
        failures += 1
        print("an altered pack is NOT refused")
    return failures


def check_start(
    folder: Path, names: list[str], cold: bool, turns: int, numbers: dict[str, Any]
) -> int:
    """See `start` above."""
    failures = 0
    without = {"FLAGOS_FLAGGEMS": "verified"}
    for name, made in packs(names, folder, "--tune", "1", "--no-times"):
        if isinstance(made, Failed):
            raise made
        run(name, 1, FLAGOS_FLAGGEMS="off")  # files are read into memory
        sides: dict[str, dict[str, str]] = {
            "native": {"FLAGOS_FLAGGEMS": "off"},
            "verified with a pack": {"FLAGOS_FLAGGEMS": "verified", "FLAGOS_PACK": str(made)},
            "verified without": without,
        }
        if cold:
            empty = tempfile.mkdtemp()
            sides["verified without, and without Triton's cache"] = {
                **without,
                "TRITON_CACHE_DIR": f"{empty}/triton",
                "FLAGGEMS_CACHE_DIR": f"{empty}/flaggems",
            }
        # In turns: the first seconds of a process depend on what the machine does besides.
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for turn in range(turns):
            for side, variables in sides.items():
                if turn == 0 or "cache" not in side:
                    found[side].append(run(name, 3, **variables))
                    print(f"  {side}: {found[side][-1]['first']:.2f} s", flush=True)
        told = {}
        for side, runs in found.items():
            seconds = [one["first"] for one in runs]
            told[side] = {"first": statistics.median(seconds), "turns": seconds, **runs[-1]}
            print(
                f"{name}, {side}: {statistics.median(seconds):.2f} s to the first step "
                f"({', '.join(f'{s:.2f}' for s in seconds)}), loss {runs[-1]['losses'][-1]:.4f}, "
                f"{runs[-1]['packed_replays']} replays, {sum(runs[-1]['fallbacks'].values())} fallbacks",
                flush=True,
            )
        more = told["verified with a pack"]["first"] - told["native"]["first"]
        print(
            f"{name}: with the pack {more:+.2f} s ({made.stat().st_size / 1e6:.2f} MB)", flush=True
        )
        failures += more > 1.0 or told["verified with a pack"]["packed_replays"] == 0
        numbers[name] = told | {"pack_bytes": made.stat().st_size}
    return failures


def check_auto(
    folder: Path,
    names: list[str],
    rounds: int,
    seconds: float,
    tune: int,
    verify: int,
    numbers: dict[str, Any],
) -> int:
    """See `auto` above."""
    failures, ratios = 0, []
    table = verified(names, folder, verify) if verify else None
    for name, made in packs(names, folder, "--tune", str(tune), table=table):
        told: dict[str, Any] | str = str(made)
        if isinstance(made, Path):
            served = {"FLAGOS_FLAGGEMS": "auto", "FLAGOS_PACK": str(made)}
            [(_, told)] = eager.compare([name], rounds, seconds, **served)
        if isinstance(told, str):
            failures += 1
            print(f"{name}: FAILED: {told}", flush=True)
            continue
        times, _ = eager.ratios(told)
        first, second = (losses[-1] for losses in told["losses"].values())
        off = abs(first - second) / abs(first)
        packed = told["packed_replays"] / max(1, told["calls"])
        ratios.append(1 / times.median)
        print(
            f"{eager.line(name, told)}; {ratios[-1]:.3f} times as fast, {packed:.0%} of the calls from the pack, "
            f"loss off by {off:.2e}",
            flush=True,
        )
        failures += off > LOSS_TOLERANCE
        numbers[name] = told | {"ratio": ratios[-1], "loss_off": off, "packed": packed}
    if ratios:
        mean = geometric_mean(ratios)
        print(f"geometric mean of {len(ratios)} models: {mean:.3f}, the least {min(ratios):.3f}")
        numbers["geometric mean"] = mean
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("part", choices=["smoke", "start", "auto", "one"])
    add("--models", default="", help=f"of {', '.join(WORKLOADS)}")
    add("--folder", type=Path, help="for records and packs (default: a temporary one)")
    add("--cold", action="store_true", help="also without anything that was compiled before")
    add("--rounds", type=int, default=7, help="of auto (default: %(default)s)")
    add(
        "--turns",
        type=int,
        default=3,
        help="processes of each side of start (default: %(default)s)",
    )
    add("--seconds", type=float, default=0.4, help="of a side's round (default: %(default)s)")
    add("--steps", type=int, default=20, help=argparse.SUPPRESS)
    add("--tune", type=int, default=1, help="as of `flagos pack` (default: %(default)s)")
    add(
        "--verify",
        type=int,
        default=0,
        metavar="SECONDS",
        help="of auto: complete the verdicts by these models' calls first, for so long at most",
    )
    add("--json", type=Path)
    options = parser.parse_args()
    names = [name for name in options.models.split(",") if name]
    if unknown := set(names) - WORKLOADS.keys():
        parser.error(
            f"{', '.join(sorted(unknown))}: no model of that name; there are {', '.join(WORKLOADS)}"
        )
    if options.part == "one":
        one(names[0], options.steps)
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="packs-"))
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, Any] = {}
    try:
        if options.part == "smoke":
            failures = check_smoke(folder)
        elif options.part == "start":
            failures = check_start(
                folder, names or ["qwen3-train", "bert-train"], options.cold, options.turns, numbers
            )
        else:
            failures = check_auto(
                folder,
                names or COMPARED,
                options.rounds,
                options.seconds,
                options.tune,
                options.verify,
                numbers,
            )
    except Failed as error:
        print(f"FAILED: {error}")
        failures = 1
    if options.json is not None:
        options.json.write_text(json.dumps(numbers, indent=1))
    print("FAILED" if failures else "OK")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

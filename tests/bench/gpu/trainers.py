"""DeepSpeed's ZeRO 3 and Megatron-LM-FL on flagos beside cuda, in turns: losses, time of a step, peak memory.

    TRAINERS_PATH=<folder> [MEGATRON_PATH=<checkout>] python -m tests.bench.gpu.trainers [--trainers A,B] [--ranks N]
        [--rounds N] [--steps N] [--transformer-impl local|transformer_engine] [--json FILE] [--small]

Each round starts every side once: flagos, cuda, and `beside`, which is cuda again. How far the losses and the ratios of
`beside` are from cuda's is their difference from run to run. Told of each side: the median time of a step without the
first three, and the peak of allocated memory, each as a ratio to cuda's of the same round: median, least, greatest; and
the largest difference of a loss from cuda's. TRAINERS_PATH is the folder of `make test-trainers`. On a machine without
a chip `--small` runs tiny models: DeepSpeed beside the CPU, Megatron-LM-FL beside itself, which has no run on the CPU.

Exits with 1 if a run fails, or if a loss on flagos is farther from cuda's than twice the difference from run to run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.timing import Spread

ROOT = Path(__file__).resolve().parents[3]
WARM_UP = 3
TRAINERS = ("deepspeed", "megatron")
SIDES = ("cuda", "flagos", "beside")


def main() -> int:
    """Runs all sides of all trainers. Returns the exit status."""
    options = _options()
    report: dict[str, Any] = {}
    for trainer in options.trainers.split(","):
        rounds = []
        for number in range(options.rounds):
            # Another side is first in each round: what warms up with time favours none.
            order = SIDES[number % len(SIDES) :] + SIDES[: number % len(SIDES)]
            rounds.append({side: _run(trainer, side, options) for side in order})
            print(f"{trainer}: round {number + 1} of {options.rounds}", file=sys.stderr)
        report[trainer] = {"rounds": rounds, **compared(rounds)}
        _print(trainer, report[trainer])
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))
    return int(any(one["far"] for one in report.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.trainers", description=__doc__)
    parser.add_argument(
        "--trainers", default="deepspeed" + (",megatron" if "MEGATRON_PATH" in os.environ else "")
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--transformer-impl", default="local", choices=("local", "transformer_engine")
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    unknown = set(options.trainers.split(",")) - set(TRAINERS)
    if unknown or options.steps <= WARM_UP + 1:
        parser.error(f"--trainers takes {', '.join(TRAINERS)}, and --steps more than {WARM_UP + 1}")
    return options


def compared(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Ratios of each side to cuda, round by round, and the largest differences of losses."""
    found: dict[str, Any] = {"ratios": {}, "losses": {}}
    for side in SIDES[1:]:
        for measure in ("seconds", "peak"):
            ratios = [one[side][measure] / one["cuda"][measure] for one in rounds]
            found["ratios"][f"{side} {measure}"] = asdict(Spread.of(ratios))
        found["losses"][side] = max(
            abs(ours - theirs)
            for one in rounds
            for ours, theirs in zip(one[side]["losses"], one["cuda"]["losses"], strict=True)
        )
    found["far"] = found["losses"]["flagos"] > 2 * found["losses"]["beside"]
    return found


def _print(trainer: str, found: dict[str, Any]) -> None:
    for name, ratios in found["ratios"].items():
        print(f"{trainer:<10} {name:<16} {Spread(**ratios).shown(3)}")
    for side, difference in found["losses"].items():
        print(f"{trainer:<10} {side} loss  {difference:.3g} from cuda's at most")


def _run(trainer: str, side: str, options: argparse.Namespace) -> dict[str, Any]:
    flagos = side == "flagos" or (options.small and trainer == "megatron")
    home = os.environ["TRAINERS_PATH"]
    variables = {
        name: text
        for name, text in os.environ.items()
        if name not in ("DS_ACCELERATOR", "FLAGOS_MEGATRON")
    }
    variables["PATH"] = os.pathsep.join((os.path.join(home, "bin"), variables["PATH"]))
    paths = [home, str(ROOT)]
    if trainer == "megatron":
        paths.append(os.environ["MEGATRON_PATH"])
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        if flagos:
            variables["FLAGOS_MEGATRON"] = "1"
        program = [str(Path(paths[-1]) / "pretrain_gpt.py"), *_megatron(options)]
    else:
        variables["DS_ACCELERATOR"] = "flagos" if flagos else "cpu" if options.small else "cuda"
        program = [
            "-m",
            "tests.bench.gpu.trainers_rank",
            str(options.steps),
            *(["--small"] if options.small else []),
        ]
    if options.small:
        variables |= {"OMP_NUM_THREADS": "1", "FLAGOS_HOST_DEVICES": str(options.ranks)}
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={options.ranks}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *program]
    begun = time.monotonic()
    done = subprocess.run(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"{trainer} on {side} failed after {time.monotonic() - begun:.0f} s:\n{done.stdout[-4000:]}"
        )
    return of_megatron(done.stdout) if trainer == "megatron" else _of_rank(done.stdout)


def _megatron(options: argparse.Namespace) -> list[str]:
    width, layers, length = (64, 4, 32) if options.small else (2048, 24, 2048)
    halves = (
        ""
        if options.small
        else "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    )
    text = f"""--mock-data --tokenizer-type NullTokenizer --vocab-size {127 if options.small else 32767}
        --num-layers {layers} --hidden-size {width} --num-attention-heads {width // 16 if options.small else 16}
        --seq-length {length} --max-position-embeddings {length} --micro-batch-size 2
        --global-batch-size {4 * options.ranks} --train-iters {options.steps} --lr 1e-4 --min-lr 1e-5 --clip-grad 1.0
        --lr-decay-style cosine --eval-iters 0 --eval-interval 1000 --log-interval 1 --seed 11
        --attention-dropout 0 --hidden-dropout 0 --transformer-impl {options.transformer_impl}
        --no-gradient-accumulation-fusion --no-persist-layer-norm --no-masked-softmax-fusion
        --no-rope-fusion {halves}"""
    return text.split()


def of_megatron(output: str) -> dict[str, Any]:
    """What Megatron-LM-FL printed."""
    line = re.compile(r"elapsed time per iteration \(ms\): ([\d.]+).*lm loss: ([\d.E+-]+)")
    steps = [(float(found[1]) / 1e3, float(found[2])) for found in line.finditer(output)]
    peaks = [float(found) for found in re.findall(r"max allocated: ([\d.]+)", output)]
    if len(steps) <= WARM_UP or not peaks:
        sys.exit(f"Megatron-LM-FL printed no steps, or no memory:\n{output[-4000:]}")
    return {
        "losses": [loss for _, loss in steps],
        "seconds": median(seconds for seconds, _ in steps[WARM_UP:]),
        "peak": max(peaks) * 2**20,
    }


def _of_rank(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.rpartition("RESULT ")[2].splitlines()[0])
    return found


if __name__ == "__main__":
    sys.exit(main())

"""DeepSpeed's ZeRO 3 and Megatron-LM-FL on flagos beside cuda, in turns: losses, time of a step, peak memory.

    TRAINERS_PATH=<folder> [MEGATRON_PATH=<checkout>] python -m tests.bench.gpu.trainers [--trainers A,B] [--ranks N]
        [--sides A,B,C] [--rounds N] [--steps N] [--limit SECONDS] [--transformer-impl local|transformer_engine]
        [--json FILE] [--logs FOLDER] [--small]

The sides of a trainer are programs that run at once and take turns on the devices (`tests.bench.gpu.turns`): flagos,
cuda, and `beside`, which is cuda again. How far the losses and the ratios of `beside` are from cuda's is their
difference from run to run. Of each side it prints the time of a step as a ratio to cuda's of the same round, without
the first round, as median, least and greatest; the ratio of the peaks of allocated memory; and the largest difference
of a loss from cuda's. TRAINERS_PATH is the folder of `make test-trainers`. On a machine without a chip `--small` runs
tiny models: DeepSpeed beside the CPU, Megatron-LM-FL beside itself, which has no run on the CPU.

Exits with 1 if a program fails or outlasts its limit, or if a loss on flagos is farther from cuda's than twice the
difference from run to run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.gpu.turns import Turns, reported
from tests.bench.timing import Spread

ROOT = Path(__file__).resolve().parents[3]
TRAINERS = ("deepspeed", "megatron")
SIDES = ("cuda", "flagos", "beside")


def main() -> int:
    """Runs all sides of all trainers. Returns the exit status."""
    options = _options()
    options.logs.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {}
    failed = False
    for trainer in options.trainers.split(","):
        try:
            sides = _run(trainer, options)
        except RuntimeError as error:
            print(error, flush=True)
            failed = True
            continue
        report[trainer] = {"sides": sides, **compared(sides)}
        _print(trainer, report[trainer])
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))
    return int(failed or any(one["far"] for one in report.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.trainers", description=__doc__)
    parser.add_argument(
        "--trainers", default="deepspeed" + (",megatron" if "MEGATRON_PATH" in os.environ else "")
    )
    parser.add_argument(
        "--sides", default=",".join(SIDES), help="those that run; the first is compared with"
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=5, help="of a round")
    parser.add_argument("--limit", type=int, default=600, help="seconds for a trainer")
    parser.add_argument(
        "--transformer-impl", default="local", choices=("local", "transformer_engine")
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "trainers")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.sides = tuple(options.sides.split(","))
    unknown = set(options.trainers.split(",")) - set(TRAINERS)
    unknown |= set(options.sides) - set(SIDES)
    if unknown or options.steps < 2 or options.rounds < 2:
        parser.error(
            f"--trainers takes {', '.join(TRAINERS)}; --sides {', '.join(SIDES)}; "
            "--rounds and --steps at least 2: the first ones warm up"
        )
    return options


def compared(sides: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ratios of each side to the first, without the first round, and the largest differences of losses."""
    found: dict[str, Any] = {"seconds": {}, "peak": {}, "losses": {}}
    first, *others = sides
    reference = sides[first]
    for side in others:
        pairs = list(zip(sides[side]["seconds"], reference["seconds"], strict=True))[1:]
        found["seconds"][side] = asdict(Spread.of([ours / theirs for ours, theirs in pairs]))
        found["peak"][side] = sides[side]["peak"] / reference["peak"]
        found["losses"][side] = max(
            abs(ours - theirs)
            for ours, theirs in zip(sides[side]["losses"], reference["losses"], strict=True)
        )
    from_run_to_run = found["losses"].get("beside", 0.0)
    found["far"] = found["losses"].get("flagos", 0.0) > 2 * from_run_to_run
    return found


def _print(trainer: str, found: dict[str, Any]) -> None:
    first, reference = next(iter(found["sides"].items()))
    steps = Spread.of([1e3 * one for one in reference["seconds"][1:]])
    losses = reference["losses"]
    print(
        f"{trainer:<10} {first:<7} a step takes {steps.shown(1)} ms, the peak is {reference['peak'] / 2**30:.2f} GiB, "
        f"{len(losses)} losses from {losses[0]:.6f} to {losses[-1]:.6f}"
    )
    for side, ratios in found["seconds"].items():
        print(f"{trainer:<10} {side:<7} seconds {Spread(**ratios).shown(3)}")
        print(f"{trainer:<10} {side:<7} peak    {found['peak'][side]:.4f}")
        print(f"{trainer:<10} {side:<7} loss    {found['losses'][side]:.3g} from {first}'s at most")
    sys.stdout.flush()


def _run(trainer: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What each side reported. Raises RuntimeError, with the end of its log, if one fails."""
    logs = {side: options.logs / f"{trainer}-{side}.log" for side in options.sides}
    running: dict[str, subprocess.Popen[bytes]] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for side in options.sides:
                turns = Turns(folder, options.sides, side, options.steps)
                command, variables = _program(trainer, side, options)
                with logs[side].open("wb") as log:
                    running[side] = subprocess.Popen(
                        command,
                        env={**variables, **turns.variables()},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
            _wait(trainer, running, logs, options.limit)
        finally:
            for process in running.values():
                process.terminate()  # torchrun ends its ranks
            for process in running.values():
                process.wait()
    found = {side: reported(log.read_text(errors="replace")) for side, log in logs.items()}
    silent = [side for side, one in found.items() if one is None]
    if silent:
        raise RuntimeError(f"{trainer} on {silent[0]} reported nothing: {_end(logs[silent[0]])}")
    return {side: one for side, one in found.items() if one is not None}


def _wait(
    trainer: str,
    running: dict[str, subprocess.Popen[bytes]],
    logs: dict[str, Path],
    limit: float,
) -> None:
    begun = time.monotonic()
    while any(process.poll() is None for process in running.values()):
        spent = time.monotonic() - begun
        for side, process in running.items():
            if process.poll():
                raise RuntimeError(
                    f"{trainer} on {side} failed after {spent:.0f} s: {_end(logs[side])}"
                )
        # The ranks end themselves at the limit, with a traceback of every thread.
        if spent > limit + 15:
            raise RuntimeError(f"{trainer} is not done after {spent:.0f} s; logs: {logs}")
        time.sleep(0.1)


def _end(log: Path) -> str:
    return f"{log}\n{log.read_text(errors='replace')[-6000:]}"


def _program(
    trainer: str, side: str, options: argparse.Namespace
) -> tuple[list[str], dict[str, str]]:
    """The command of a side, and its environment."""
    flagos = side == "flagos" or (options.small and trainer == "megatron")
    home = os.environ["TRAINERS_PATH"]
    variables = {
        name: text
        for name, text in os.environ.items()
        if name not in ("DS_ACCELERATOR", "FLAGOS_MEGATRON")
    }
    variables["PATH"] = os.pathsep.join((os.path.join(home, "bin"), variables["PATH"]))
    if not flagos:
        variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # nothing of flagos in the other sides
    steps = options.rounds * options.steps
    if trainer == "megatron":
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        if flagos:
            variables["FLAGOS_MEGATRON"] = "1"
        program = [str(Path(os.environ["MEGATRON_PATH"]) / "pretrain_gpt.py"), str(options.limit)]
        program += _megatron(options, steps)
    else:
        variables["DS_ACCELERATOR"] = "flagos" if flagos else "cpu" if options.small else "cuda"
        program = [str(steps), str(options.limit), *(["--small"] if options.small else [])]
    if options.small:
        variables |= {"OMP_NUM_THREADS": "1", "FLAGOS_HOST_DEVICES": str(options.ranks)}
    variables["PYTHONPATH"] = os.pathsep.join((home, str(ROOT)))
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={options.ranks}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    return [*command, "-m", f"tests.bench.gpu.trainers_{trainer}", *program], variables


def _megatron(options: argparse.Namespace, steps: int) -> list[str]:
    width, layers, length = (64, 4, 32) if options.small else (2048, 12, 1024)
    halves = (
        ""
        if options.small
        else "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    )
    text = f"""--mock-data --tokenizer-type NullTokenizer --vocab-size {127 if options.small else 32767}
        --num-layers {layers} --hidden-size {width} --num-attention-heads {width // 16 if options.small else 16}
        --seq-length {length} --max-position-embeddings {length} --micro-batch-size 2
        --global-batch-size {4 * options.ranks} --train-iters {steps} --lr 1e-4 --min-lr 1e-5 --clip-grad 1.0
        --lr-decay-style cosine --eval-iters 0 --eval-interval 1000 --log-interval 1 --seed 11
        --attention-dropout 0 --hidden-dropout 0 --transformer-impl {options.transformer_impl}
        --no-gradient-accumulation-fusion --no-persist-layer-norm --no-masked-softmax-fusion
        --no-rope-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion {halves}"""
    return text.split()


if __name__ == "__main__":
    sys.exit(main())

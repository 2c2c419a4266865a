"""A whole model with every operator that FlagGems has on FlagGems: what it costs, and whether it learns the same.

    python -m tests.bench.gpu.flaggems_model [--rounds N] [--warmup N] [--layers N] [--json FILE]

Three sides take turns in one process, with a Qwen3 of the size of the published 0.6B and the same random weights
in bfloat16: torch's own kernels on cuda; flagos, routed to FlagGems wherever it is not known to be wrong, its calls
replayed; and FlagGems on cuda as it registers itself, launched from Python, with the functions of which no overload
is known to be wrong (with all of them, training ends in an illegal memory access on an H200). Greedy generation, and
training steps with AdamW. The first rounds are not counted: kernels are compiled and tuned, and calls recorded.

Exits with 1 when a loss on flagos is further from cuda's of the same step than TOLERANCE, or FlagGems served nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import torch_fl
from tests.bench.machine import driver, gpu, versions
from tests.bench.timing import measure
from torch_fl import launcher, replay
from torch_fl.aten import routing
from torch_fl.flaggems import implementations
from torch_fl.flaggems.parts import PARTS

from .flaggems import as_is
from .models import (
    Pair,
    Size,
    Trainer,
    build,
    drawn,
    greedy,
    losses_differ_by,
    per_second,
    release,
    timed,
)

SIDES = ("cuda", "flagos", "python")
TOLERANCE = 0.02
"""Relative, of a loss: bfloat16 has 8 bits (0.4 %), and the sums of 28 layers are added in another order."""


def device_of(side: str) -> str:
    return "flagos" if side == "flagos" else "cuda"


def functions(routed: Collection[str]) -> set[str]:
    """FlagGems' functions of which every overload that can be routed is."""
    known = {op: name for op, name in implementations.registered().items() if op not in PARTS}
    left_out = {
        name for op, name in known.items() if implementations.usable(op) and op not in routed
    }
    return {known[op] for op in routed if op in known} - left_out


def calls() -> dict[str, int]:
    """How many calls FlagGems' implementations took so far, by overload."""
    counted = routing.counters()
    return {op: known["calls"] - known["fallbacks"] for op, known in counted.items()}


def replays_so_far() -> int:
    """How many calls were replayed, of all operators."""
    return sum(known.replays for known in replay.statistics().values())


def measured(
    works: dict[str, Callable[[], Any]],
    included: set[str],
    tokens: int,
    rounds: int,
    warmup: int,
) -> dict[str, Any]:
    """Tokens per second of each side, its ratios, and what FlagGems served in a round on flagos."""
    served: dict[str, int] = {}
    replays: list[int] = []

    def side(name: str) -> Callable[[], float]:
        def run() -> float:
            before, replayed = calls(), replays_so_far()
            start = time.perf_counter()
            with as_is(name, included):
                seconds = timed(device_of(name), works[name])
            if name == "flagos":
                served.clear()
                after = calls()
                served.update({op: n for op in after if (n := after[op] - before.get(op, 0))})
                replays.append(replays_so_far() - replayed)
            print(f"  {name}: {seconds:.2f} s ({time.perf_counter() - start:.1f})", flush=True)
            return seconds

        return run

    seconds = measure({name: side(name) for name in works}, rounds, warmup)
    rate = per_second(tokens, seconds)
    ours = set(replay.statistics())
    kept = {op: n for op, n in served.items() if op in ours}
    return {
        "tokens_per_second": {name: asdict(spread) for name, spread in rate.items()},
        "flagos over cuda, tokens per second": asdict(seconds.ratio("cuda", "flagos")),
        "flagos over FlagGems from Python, tokens per second": asdict(
            seconds.ratio("python", "flagos")
        ),
        "calls by FlagGems in a round": sum(kept.values()),
        "of them replayed": replays[-1],
        "overloads": dict(sorted(kept.items(), key=lambda item: -item[1])),
    }


def generation(
    model: torch.nn.Module, size: Size, included: set[str], rounds: int, warmup: int
) -> dict[str, Any]:
    """`model.generate`, greedy, one sequence."""
    models = {side: placed(model, side) for side in SIDES}
    writers = {side: greedy(*models[side], size) for side in SIDES}
    found = measured(dict(writers), included, size.new_tokens, rounds, warmup)
    expected, ours = (writers[side].written.cpu()[0] for side in ("cuda", "flagos"))
    differ = (expected != ours).nonzero()
    # Greedy choices between near ties differ when sums are added in another order; all that follows does then.
    found["tokens before the first that differs from cuda's"] = (
        int(differ[0]) if len(differ) else len(expected)
    )
    return found | first_choice(models, size)


def first_choice(models: dict[str, tuple[torch.nn.Module, str]], size: Size) -> dict[str, float]:
    """How near the logits of the first token are to cuda's, and how near cuda's first choice is to its second."""
    logits = {}
    for side in ("cuda", "flagos"):
        model, device = models[side]
        with torch.no_grad():
            said = model(drawn(size, 1, size.prompt).to(device)).logits[0, -1]
        logits[side] = said.double().cpu()
    spread = logits["cuda"].std()
    best, second = logits["cuda"].topk(2).values
    apart = (logits["flagos"] - logits["cuda"]).abs()
    return {
        "first logits: mean difference from cuda's, in standard deviations": float(
            apart.mean() / spread
        ),
        "first logits: greatest difference, likewise": float(apart.max() / spread),
        "first logits: cuda's first choice above its second, likewise": float(
            (best - second) / spread
        ),
    }


def training(
    model: torch.nn.Module, size: Size, included: set[str], rounds: int, warmup: int
) -> dict[str, Any]:
    """Forward, backward and AdamW, on one batch."""
    trainers = {side: Trainer(*placed(model, side), size) for side in SIDES}
    tokens = size.batch * size.length * size.steps
    found = measured(dict(trainers), included, tokens, rounds, warmup)
    for side in ("flagos", "python"):
        found[f"greatest relative difference of a loss, {side}"] = losses_differ_by(
            {name: trainers[name] for name in ("cuda", side)}
        )
    found["losses"] = curves = {side: trainer.curve() for side, trainer in trainers.items()}
    ours = found["greatest relative difference of a loss, flagos"]
    # A model that learnt nothing would be as close as one that learnt the same.
    learnt = abs(curves["cuda"][-1] - curves["cuda"][0]) / curves["cuda"][0]
    found["checks"] = {
        f"losses within {TOLERANCE:.0%}": ours <= TOLERANCE,
        "the losses change by more": learnt > 2 * TOLERANCE,
    }
    return found


def placed(model: torch.nn.Module, side: str) -> tuple[torch.nn.Module, str]:
    """A copy of the model on a side's device, and that device."""
    device = device_of(side)
    return Pair("cuda", "flagos").place(model, device), device


def show(name: str, found: dict[str, Any]) -> None:
    """A paragraph for people."""
    print(f"\n{name}")
    for side, rate in found["tokens_per_second"].items():
        span = f"({rate['least']:,.1f} to {rate['greatest']:,.1f})"
        print(f"  {side:8} {rate['median']:12,.1f} tokens/s {span}")
    for what, value in found.items():
        if isinstance(value, dict) and "median" in value:
            print(
                f"  {what}: {value['median']:.3f} ({value['least']:.3f} to {value['greatest']:.3f})"
            )
        elif isinstance(value, (int, float)):
            print(f"  {what}: {value:.6g}")
    print(f"  overloads served by FlagGems: {len(found['overloads'])}: {found['overloads']}")
    for check, passed in found.get("checks", {}).items():
        print(f"  {'ok    ' if passed else 'WRONG '} {check}")
    sys.stdout.flush()


def main() -> int:
    """Measures both and writes the figures after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=4, help="rounds that are not counted")
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("--only", choices=("generation", "training"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    size = Size() if options.layers is None else Size(layers=options.layers)
    launcher.install()
    routed = torch_fl.enable_flaggems()
    document: dict[str, Any] = {
        "gpu": gpu(),
        "driver": driver(),
        "versions": versions("torch", "triton", "flag_gems", "transformers"),
        "size": asdict(size),
        "routed": len(routed),
    }
    included = functions(routed)
    print(f"{len(routed)} overloads are routed to FlagGems; {len(included)} functions are whole")
    model, good = build(size), True
    for name, workload in (("generation", generation), ("training", training)):
        if options.only not in (None, name):
            continue
        found = workload(model, size, included, options.rounds, options.warmup)
        good &= bool(found["overloads"]) and all(found.get("checks", {}).values())
        refused = {op: r.reasons for op, r in replay.statistics().items() if r.refused}
        found["refused"] = refused
        document[name] = found
        show(name, found)
        for op, reasons in refused.items():
            print(f"  not replayed: {op}: {'; '.join(reasons)[:200]}")
        if options.json:
            options.json.write_text(json.dumps(document, indent=1) + "\n")
        release()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

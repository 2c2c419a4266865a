"""The host's cost of an operator served by FlagGems: from Python, with the launcher, and replayed.

    python -m tests.bench.gpu.flaggems [--json FILE] [--rounds N] [--ops NAME,...]

Four ways on small tensors, in turns, in one process: torch's own operator on cuda; FlagGems on cuda as
FlagGems registers it; the same with `torch_fl.launcher`; and the operator on flagos, routed to FlagGems,
whose calls are replayed. Nanoseconds are medians of the rounds; ratios are over the rounds, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import torch_fl
from tests.bench.timing import Measured, geometric_mean, lines, measure
from torch_fl import launcher, replay

from .submit import submitted

_WAYS = ("cuda", "python", "launcher", "replayed")


def operators(device: str) -> dict[str, Callable[[], Any]]:
    """The operators by name, on small tensors of `device`."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype).to(device)

    x, y = random(64, 64), random(64, 64)
    weight = random(64)
    half, half_other = (random(64, 64, dtype=torch.bfloat16) for _ in range(2))
    batch, batch_other = (random(4, 64, 64, dtype=torch.bfloat16) for _ in range(2))
    table, tokens = random(128, 64), torch.arange(32).to(device)
    mask = x > 0
    return {
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "silu": lambda: F.silu(x),
        "gelu": lambda: F.gelu(x),
        "softmax": lambda: torch.softmax(x, -1),
        "rms_norm": lambda: F.rms_norm(x, (64,), weight),
        "layer_norm": lambda: F.layer_norm(x, (64,), weight, weight),
        "sum": lambda: x.sum(),
        "mean": lambda: x.mean(),
        "exp": lambda: x.exp(),
        "mm": lambda: half @ half_other,
        "bmm": lambda: torch.bmm(batch, batch_other),
        "cat": lambda: torch.cat((x, y)),
        "embedding": lambda: F.embedding(tokens, table),
        "cos": lambda: x.cos(),
        "sin": lambda: x.sin(),
        "rsqrt": lambda: x.rsqrt(),
        "where": lambda: torch.where(mask, x, y),
    }


@contextlib.contextmanager
def as_is(way: str, include: Collection[str] | None = None) -> Iterator[None]:
    """FlagGems registered for CUDA the way it registers itself, with or without the launcher.

    All of it, or the functions named.
    """
    if way not in ("python", "launcher"):
        yield
        return
    import flag_gems

    if way == "python":
        launcher.uninstall()
    with flag_gems.use_gems(include=include and sorted(include)):
        yield
    if way == "python":
        launcher.install()


def measure_all(
    wanted: set[str], rounds: int, iterations: int
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Nanoseconds of each operator in each way that runs, and by operator why another way does not."""
    results: dict[str, Measured] = {}
    errors: dict[str, str] = {}
    tables = {device: operators(device) for device in ("cuda", "flagos")}
    for name in tables["cuda"]:
        if wanted and name not in wanted:
            continue

        def side(way: str, call: Callable[[], Any]) -> float:
            with as_is(way):
                for _ in range(5):
                    call()
                return submitted(call, iterations)

        sides: dict[str, Callable[[], float]] = {}
        for way in _WAYS:
            run = partial(side, way, tables["flagos" if way == "replayed" else "cuda"][name])
            try:
                run()  # compiles
                sides[way] = run
            except Exception as failure:
                errors[name] = f"{way}: {type(failure).__name__}: {failure}"[:300]
        results[name] = measure(sides, rounds, collected=False)
    return results, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--ops", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    launcher.install()
    torch_fl.enable_flaggems()
    wanted = set(options.ops.split(",")) - {""}
    with torch.no_grad():
        results, errors = measure_all(wanted, options.rounds, options.iterations)
    print(*lines(results, "ns", "operator", digits=0), sep="\n")
    for name, error in errors.items():
        print(f"{name}: {error}")
    summary = {}
    for a, b in (("replayed", "cuda"), ("python", "replayed"), ("python", "launcher")):
        both = [one.ratio(a, b).median for one in results.values() if {a, b} <= one.samples.keys()]
        if both:
            summary[f"{a} over {b}"] = geometric_mean(both)
    for what, mean in summary.items():
        print(f"geometric mean {what}: {mean:.3f}")
    recordings = {
        op: vars(known)
        for op, known in replay.statistics().items()
        if known.replayed or known.refused
    }
    for op, known in recordings.items():
        print(f"  {op}: {known}")
    print(launcher.statistics())
    if options.json:
        found = {name: measured.to_json() for name, measured in results.items()}
        document = {"operators": found, "errors": errors, "geometric_means": summary}
        document["recordings"] = recordings
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What an operator served by FlagGems costs the host: from Python, with the launcher, and replayed.

    python -m tests.gpu.flaggems [--json FILE] [--rounds N] [--ops NAME,...]

Four ways on small tensors, in turns, in one process: torch's own operator on cuda; FlagGems on cuda as
FlagGems registers it; the same with `torch_fl.launcher`; and the operator on flagos, routed to FlagGems,
whose calls are replayed. Nanoseconds are medians of the rounds; ratios are over the rounds, too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import statistics
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import torch_fl
from torch_fl import launcher, replay

from .submit import _nanoseconds

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


def measure(wanted: set[str], rounds: int, iterations: int) -> dict[str, dict[str, Any]]:
    """Nanoseconds of each operator in each way, and the ratios to torch's own."""
    results: dict[str, dict[str, Any]] = {}
    tables = {device: operators(device) for device in ("cuda", "flagos")}
    for name in tables["cuda"]:
        if wanted and name not in wanted:
            continue
        calls = {way: tables["flagos" if way == "replayed" else "cuda"][name] for way in _WAYS}
        times: dict[str, list[float]] = {way: [] for way in _WAYS}
        error = ""
        gc.collect()
        gc.disable()
        for turn in range(rounds + 1):
            for way in _WAYS if turn % 2 else reversed(_WAYS):
                try:
                    with as_is(way):
                        for _ in range(5):
                            calls[way]()
                        spent = _nanoseconds(calls[way], iterations)
                except Exception as failure:
                    error = f"{way}: {type(failure).__name__}: {failure}"[:300]
                    continue
                if turn:  # the first round compiles
                    times[way].append(spent)
        gc.enable()
        row: dict[str, Any] = {f"{way}_ns": statistics.median(t) for way, t in times.items() if t}
        for way in _WAYS[1:]:
            if times[way] and times["cuda"]:
                ratios = [a / b for a, b in zip(times[way], times["cuda"], strict=False)]
                row[f"{way}_ratio"] = statistics.median(ratios)
                row[f"{way}_ratio_min"], row[f"{way}_ratio_max"] = min(ratios), max(ratios)
        if error:
            row["error"] = error
        results[name] = row
    return results


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
        results = measure(wanted, options.rounds, options.iterations)
    print(f"{'operator':11} " + " ".join(f"{way:>9}" for way in _WAYS) + "   ratio of replayed")
    for name, row in results.items():
        cells = " ".join(f"{row.get(f'{way}_ns', math.nan):9.0f}" for way in _WAYS)
        ratio = row.get("replayed_ratio", math.nan)
        span = f"({row.get('replayed_ratio_min', 0):.2f} to {row.get('replayed_ratio_max', 0):.2f})"
        print(f"{name:11} {cells}   {ratio:6.3f} {span} {row.get('error', '')}")
    summary = {}
    for a, b in (("replayed", "cuda"), ("python", "replayed"), ("python", "launcher")):
        rows = [row for row in results.values() if f"{a}_ns" in row and f"{b}_ns" in row]
        if rows:
            logs = [math.log(row[f"{a}_ns"] / row[f"{b}_ns"]) for row in rows]
            summary[f"{a} over {b}"] = math.exp(statistics.fmean(logs))
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
        document = {"operators": results, "geometric_means": summary, "recordings": recordings}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

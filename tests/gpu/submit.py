"""What an operator costs the host: flagos over CUDA against CUDA itself, in one process.

    python -m tests.gpu.submit [--json FILE] [--rounds N]

Each operator is submitted many times without waiting for the device, alternately on both devices;
the ratio of the two medians is what a program that is bound by its host pays for flagos.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

_DEVICES = ("cuda", "flagos")


def operators(device: str) -> dict[str, Callable[[], Any]]:
    """The operators by name, on small tensors of `device`."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype).to(device)

    x, y, target = random(64, 64), random(64, 64), random(64, 64)
    weight, bias = random(64, 64), random(64)
    half, half_other = random(64, 64, dtype=torch.bfloat16), random(64, 64, dtype=torch.bfloat16)
    q, k, v = (random(1, 4, 64, 64, dtype=torch.bfloat16) for _ in range(3))
    index = torch.arange(0, 64, 2).to(device)
    place = torch.device(device, 0)
    return {
        "empty": lambda: torch.empty(64, 64, device=place),
        "view": lambda: x.view(4096),
        "t": lambda: x.t(),
        "add": lambda: x + y,
        "add_": lambda: target.add_(y),
        "mul": lambda: x * y,
        "add scalar": lambda: x + 1.0,
        "silu": lambda: F.silu(x),
        "softmax": lambda: torch.softmax(x, -1),
        "mm": lambda: half @ half_other,
        "rms_norm": lambda: F.rms_norm(x, (64,), bias),
        "layer_norm": lambda: F.layer_norm(x, (64,), bias, bias),
        "sum": lambda: x.sum(),
        "exp": lambda: x.exp(),
        "cat": lambda: torch.cat((x, y)),
        "linear": lambda: F.linear(x, weight, bias),
        "sdpa": lambda: F.scaled_dot_product_attention(q, k, v),
        "copy_": lambda: target.copy_(y),
        "to": lambda: x.to(torch.bfloat16),
        "index": lambda: x[index],
    }


def _nanoseconds(call: Callable[[], Any], iterations: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(iterations):
        call()
    spent = time.perf_counter_ns() - start
    torch.cuda.synchronize()
    return spent / iterations


def measure(rounds: int, iterations: int) -> dict[str, dict[str, Any]]:
    """Nanoseconds of each operator on each device, round by round, and the ratios of the rounds."""
    tables = {device: operators(device) for device in _DEVICES}
    results: dict[str, dict[str, Any]] = {}
    with torch.no_grad():
        for name in tables["cuda"]:
            times: dict[str, list[float]] = {device: [] for device in _DEVICES}
            for device in _DEVICES:
                _nanoseconds(tables[device][name], iterations)
            gc.collect()
            gc.disable()
            for turn in range(rounds):
                # Who goes first alternates, so that neither profits from the other's warm caches.
                for device in _DEVICES if turn % 2 else reversed(_DEVICES):
                    times[device].append(_nanoseconds(tables[device][name], iterations))
            gc.enable()
            ratios = [
                ours / theirs for ours, theirs in zip(times["flagos"], times["cuda"], strict=True)
            ]
            results[name] = {
                "cuda_ns": statistics.median(times["cuda"]),
                "flagos_ns": statistics.median(times["flagos"]),
                "ratio": statistics.median(times["flagos"]) / statistics.median(times["cuda"]),
                "ratio_min": min(ratios),
                "ratio_max": max(ratios),
            }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = measure(options.rounds, options.iterations)
    print(f"{'operator':12} {'cuda ns':>9} {'flagos ns':>10} {'ratio':>7} {'min':>6} {'max':>6}")
    for name, row in results.items():
        print(
            f"{name:12} {row['cuda_ns']:9.0f} {row['flagos_ns']:10.0f} {row['ratio']:7.3f} "
            f"{row['ratio_min']:6.2f} {row['ratio_max']:6.2f}"
        )
    ratios = [row["ratio"] for row in results.values()]
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    print(f"geometric mean {mean:.3f}, highest {max(ratios):.3f}")
    if options.json:
        document = {"operators": results, "geometric_mean": mean, "highest": max(ratios)}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The host's cost of an operator: flagos over CUDA against CUDA itself, in one process.

    python -m tests.bench.gpu.submit [--json FILE] [--rounds N]

Each operator is submitted many times without waiting for the device, alternately on both devices;
the ratio of both in each round is what a program that is bound by its host pays for flagos.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.bench.timing import Measured, geometric_mean, lines, measure, nanoseconds_per_call

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


def submitted(call: Callable[[], Any], iterations: int) -> float:
    """Nanoseconds of submitting one call to the device."""
    return nanoseconds_per_call(call, iterations, torch.cuda.synchronize)


def measure_all(rounds: int, iterations: int) -> dict[str, Measured]:
    """Nanoseconds of each operator on both devices."""
    tables = {device: operators(device) for device in _DEVICES}
    results: dict[str, Measured] = {}
    with torch.no_grad():
        for name in tables["cuda"]:
            sides = {
                device: partial(submitted, tables[device][name], iterations) for device in _DEVICES
            }
            results[name] = measure(sides, rounds, collected=False)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = measure_all(options.rounds, options.iterations)
    print(*lines(results, "ns", "operator", digits=0), sep="\n")
    ratios = [measured.ratio("flagos").median for measured in results.values()]
    mean = geometric_mean(ratios)
    print(f"geometric mean {mean:.3f}, highest {max(ratios):.3f}")
    if options.json:
        found = {name: measured.to_json() for name, measured in results.items()}
        document = {"operators": found, "geometric_mean": mean, "highest": max(ratios)}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Latency and bandwidth of collectives beside gloo, in one run: `flagos bench comm`.

    python -m torch_fl.distributed.bench [--ranks 2] [--sizes 1K,64K,1M,64M] [--json]

Both sides take turns in the same processes, on tensors of the CPU, through torch.distributed. Where several
devices of torch's own serve flagos, the other side is torch's backend for them, and there is one process a device.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypedDict

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from torch_fl import flagos
from torch_fl.native import native
from torch_fl.native.description import is_known_to_torch

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
ROUNDS = 9


class Row(TypedDict):
    """The measurements of one collective and size."""

    collective: str
    bytes: int
    us: dict[str, dict[str, float]]  # by side: the spread of a call's microseconds
    bus_gb_s: dict[str, float]  # by side
    ratio: dict[str, float]  # the spread of how many times faster flagos is


def bytes_of(text: str) -> int:
    """The number behind "64K" or "1M"."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = text[-1:].upper()
    number = text[:-1] if unit in scale else text
    size = int(number) * scale.get(unit, 1)
    if size < 4:
        raise argparse.ArgumentTypeError(f"{text!r} is less than one float32")
    return size


def spread(samples: list[float]) -> dict[str, float]:
    """Minimum, median and maximum."""
    return {"min": min(samples), "median": statistics.median(samples), "max": max(samples)}


def measure(what: str, size: int, sides: dict[str, tuple[str, Any]]) -> Row:
    """Microseconds of a call on each side, and the bus bandwidth of the medians in GB/s."""
    ranks = dist.get_world_size()
    calls: dict[str, Callable[[], object]] = {}
    for side, (device, group) in sides.items():
        whole = torch.zeros(max(ranks, size // 4 // ranks * ranks), device=device)
        part = whole.chunk(ranks)[0].clone()
        calls[side] = partial(
            {
                "all_reduce": lambda whole, part, group: dist.all_reduce(whole, group=group),
                "all_gather": lambda whole, part, group: dist.all_gather_into_tensor(
                    whole, part, group=group
                ),
                "reduce_scatter": lambda whole, part, group: dist.reduce_scatter_tensor(
                    part, whole, group=group
                ),
            }[what],
            whole,
            part,
            group,
        )
    on_device = any(device != "cpu" for device, _ in sides.values())
    repeats = max(2, min(300, (8 << 20) // size))
    samples: dict[str, list[float]] = {side: [] for side in sides}
    for round_ in range(ROUNDS + 1):
        for side in list(sides)[:: 1 if round_ % 2 else -1]:
            dist.barrier()
            start = time.perf_counter()
            for _ in range(repeats):
                calls[side]()
            if on_device:
                torch.accelerator.synchronize()
            took = (time.perf_counter() - start) / repeats * 1e6
            if round_:
                samples[side].append(took)
    factor = (2 if what == "all_reduce" else 1) * (ranks - 1) / ranks
    ours, theirs = sides
    return {
        "collective": what,
        "bytes": size,
        "us": {side: spread(samples[side]) for side in sides},
        "bus_gb_s": {
            side: factor * size / statistics.median(samples[side]) * 1e-3 for side in sides
        },
        # Rounds alternate between the two sides, so that a slow moment of the machine affects both.
        "ratio": spread([b / a for a, b in zip(samples[ours], samples[theirs], strict=True)]),
    }


def rank_process(rank: int, options: argparse.Namespace, port: int, results: Any) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(options.ranks),
    }
    sides: dict[str, tuple[str, Any]]
    if options.device_type:
        flagos.set_device(rank)
        theirs = dist.Backend.default_device_backend_map[options.device_type]
        dist.init_process_group(f"cpu:flagos,{options.device_type}:{theirs},flagos:flagos")
        sides = {"flagos": ("flagos", None), theirs: (options.device_type, None)}
    else:
        torch.set_num_threads(1)
        dist.init_process_group("flagos")
        sides = {"flagos": ("cpu", None), "gloo": ("cpu", dist.new_group(backend="gloo"))}
    found = [measure(what, size, sides) for what in options.collectives for size in options.sizes]
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        results.put(found)


def size_name(size: int) -> str:
    """`64 KiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def table(found: list[Row]) -> str:
    """The results as lines of text."""
    ours, theirs = found[0]["us"]
    lines = [
        f"{'collective':15} {'size':>9}  {ours + ' us':>12} {theirs + ' us':>20}"
        f"  {ours + ' GB/s':>12} {theirs + ' GB/s':>22}  times faster (min, max)"
    ]
    for row in found:
        ratio = row["ratio"]
        lines.append(
            f"{row['collective']:15} {size_name(row['bytes']):>9}"
            f"  {row['us'][ours]['median']:12.1f} {row['us'][theirs]['median']:20.1f}"
            f"  {row['bus_gb_s'][ours]:12.3f} {row['bus_gb_s'][theirs]:22.3f}"
            f"  {ratio['median']:.2f} ({ratio['min']:.2f}, {ratio['max']:.2f})"
        )
    return "\n".join(lines)


def run(options: argparse.Namespace) -> list[Row]:
    """Measure in separate processes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    running = mp.spawn(rank_process, (options, port, results), nprocs=options.ranks, join=False)
    while not running.join():
        pass
    found: list[Row] = results.get()
    return found


def main() -> int:
    """Prints the table, or one JSON value."""
    parser = argparse.ArgumentParser(description="Collectives of flagos beside torch's own.")
    parser.add_argument(
        "--ranks", type=int, default=0, help="processes (default: 2, or one a device)"
    )
    parser.add_argument("--sizes", default="1K,64K,1M,64M", help="bytes (default: 1K,64K,1M,64M)")
    parser.add_argument(
        "--collectives", default=",".join(COLLECTIVES), help="of these, separated by commas"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value instead of text")
    options = parser.parse_args()
    options.sizes = [bytes_of(size) for size in options.sizes.split(",")]
    options.collectives = options.collectives.split(",")
    unknown = set(options.collectives) - set(COLLECTIVES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(COLLECTIVES)}")
    devices = flagos.device_count()
    of_torch = is_known_to_torch() and devices > 1
    options.device_type = native().device_type if of_torch else ""
    options.ranks = options.ranks or (devices if of_torch else 2)
    if options.ranks < 2 or (of_torch and options.ranks > devices):
        parser.error(f"{options.ranks} ranks cannot be measured here")
    found = run(options)
    if options.json:
        print(json.dumps({"ranks": options.ranks, "results": found}, indent=2))
    else:
        print(f"{options.ranks} ranks, float32")
        print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

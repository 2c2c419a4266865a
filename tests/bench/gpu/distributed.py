"""The engine nccl of flagos against torch's ProcessGroupNCCL, in one run.

    python -m tests.bench.gpu.distributed [--json FILE] [--largest BYTES] [--no-model]

One process a device. Every process has tensors on cuda, which ProcessGroupNCCL serves, and on flagos,
which flagos serves, and alternates between them. Prints what a call costs the host, bus bandwidths (as
nccl-tests defines them), a DDP step of a model of Qwen3-0.6B's shape, and how much of the communication
of that step runs beside computation.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from adapters.torch.tests.launch import free_port
from tests.bench.gpu.overlap import share_beside, spans
from tests.bench.timing import Measured, lines, measure, nanoseconds_per_call, seconds_of

SIDES = ("cuda", "flagos")
ROUNDS = 7


def alternate(sides: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> Measured:
    """Measures each side, all ranks at once."""
    return measure(sides, rounds, before=dist.barrier)


def submission(asynchronous: bool) -> Measured:
    """Microseconds that a call of all_reduce over 1 KiB takes the host."""

    def side(device: str) -> Callable[[], float]:
        x = torch.zeros(256, device=device)

        def call() -> None:
            work = dist.all_reduce(x, async_op=asynchronous)
            if work is not None:
                work.wait()

        return lambda: nanoseconds_per_call(call, 200, torch.cuda.synchronize) * 1e-3

    return alternate({side_: side(side_) for side_ in SIDES}, rounds=15)


def bandwidth(what: str, size: int) -> Measured:
    """Bus bandwidth in GB/s of a collective over `size` bytes."""
    ranks = dist.get_world_size()

    def side(device: str) -> Callable[[], float]:
        whole = torch.zeros(size // 4 // ranks * ranks, device=device)
        part = whole.chunk(ranks)[dist.get_rank()].clone()
        call, factor = {
            "all_reduce": (lambda: dist.all_reduce(whole), 2 * (ranks - 1) / ranks),
            "all_gather": (lambda: dist.all_gather_into_tensor(whole, part), (ranks - 1) / ranks),
            "reduce_scatter": (
                lambda: dist.reduce_scatter_tensor(part, whole),
                (ranks - 1) / ranks,
            ),
        }[what]
        repeats = max(3, min(50, (1 << 31) // size))

        def run() -> float:
            call()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(repeats):
                call()
            end.record()
            torch.cuda.synchronize()
            return factor * size * repeats / (start.elapsed_time(end) * 1e-3) / 1e9

        return run

    return alternate({side_: side(side_) for side_ in SIDES})


def qwen3(device: str) -> torch.nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        model: torch.nn.Module = Qwen3ForCausalLM(config).to(torch.bfloat16)
    return model


def ddp_step() -> tuple[Measured, dict[str, float | str]]:
    """Milliseconds of a step of training, and how much of its communication runs beside computation."""
    steps: dict[str, Callable[[], None]] = {}
    for device in SIDES:
        model = DDP(qwen3(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        tokens = torch.randint(0, 151_936, (2, 1024), device=device)

        def step(model: Any = model, optimizer: Any = optimizer, tokens: Any = tokens) -> None:
            model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        steps[device] = step

    def timed(step: Callable[[], None]) -> Callable[[], float]:
        def three() -> None:
            for _ in range(3):
                step()

        return lambda: seconds_of(three, torch.cuda.synchronize) / 3 * 1e3

    found = alternate({side: timed(steps[side]) for side in SIDES})
    return found, {side: overlap(steps[side]) for side in SIDES}


def overlap(step: Callable[[], None]) -> float | str:
    """The part of the time of NCCL's kernels in which other kernels run too, or why it is not known."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        step()
        torch.cuda.synchronize()
    try:
        return share_beside(*spans(profiler.events() or []))
    except ValueError as error:
        return f"not measured: {error}"


def rank_process(rank: int, options: argparse.Namespace, world: int, port: int) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
    }
    torch.cuda.set_device(rank)
    # Each device type has its own backend in one group. The CPU's is flagos' too, for barriers.
    dist.init_process_group("cpu:flagos,cuda:nccl,flagos:flagos", timeout=timedelta(seconds=120))
    report: dict[str, Any] = {
        "ranks": world,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
    # Both sides are right: they reduce the same values to the same bits.
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        # Sums of so small numbers are exact in bfloat16, in whatever order 8 ranks are added.
        values = torch.arange(100_003, device="cuda").remainder(17).add(rank).to(dtype)
        a, b = values.clone(), values.to("cpu").to("flagos")
        dist.all_reduce(a)
        dist.all_reduce(b)
        assert torch.equal(a.cpu(), b.cpu()), dtype
    taken = {
        "submission, sync, us": submission(False),
        "submission, async and wait, us": submission(True),
    }
    for what in ("all_reduce", "all_gather", "reduce_scatter"):
        size = 1 << 20
        while size <= options.largest:
            taken[f"{what} {size >> 20} MiB, GB/s"] = bandwidth(what, size)
            size *= 4
    if options.model:
        taken["DDP step of Qwen3-0.6B, ms"], report["overlap"] = ddp_step()
    dist.barrier()
    if rank == 0:
        show(report, taken)
        report["measured"] = {name: measured.to_json() for name, measured in taken.items()}
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=2))
    dist.destroy_process_group()


def show(report: dict[str, Any], taken: dict[str, Measured]) -> None:
    print(f"{report['ranks']} x {report['device']}, torch {report['torch']}, NCCL {report['nccl']}")
    named = {
        name: Measured({"ProcessGroupNCCL": one.samples["cuda"], "flagos": one.samples["flagos"]})
        for name, one in taken.items()
    }
    print(*lines(named, "", digits=2), sep="\n")
    if "overlap" in report:
        shares = ", ".join(
            f"{side} {share:.0%}" if isinstance(share, float) else f"{side} {share}"
            for side, share in report["overlap"].items()
        )
        print(f"communication beside computation: {shares}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", help="write the report to this file too")
    parser.add_argument(
        "--largest", type=int, default=1 << 30, help="bytes of the largest collective"
    )
    parser.add_argument(
        "--no-model", dest="model", action="store_false", help="leave the DDP step out"
    )
    options = parser.parse_args()
    world = torch.cuda.device_count()
    if world < 2:
        print(f"needs two NVIDIA devices, found {world}", file=sys.stderr)
        return 1
    mp.spawn(rank_process, (options, world, free_port()), nprocs=world)
    return 0


if __name__ == "__main__":
    sys.exit(main())

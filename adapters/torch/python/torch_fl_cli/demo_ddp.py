"""The demonstration of `flagos demo` as distributed data parallel training.

    torchrun --nproc-per-node=2 -m torch_fl_cli.demo_ddp [--steps 20]

Every rank trains on its part of each batch with stock DistributedDataParallel. Rank 0 then trains alone
on whole batches, and compares: losses agree up to the order in which float32 numbers are added.
"""

from __future__ import annotations

import argparse
import io
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torch_fl import distributed
from torch_fl_cli import demo
from torch_fl_cli.demo_common import Settings

TOLERANCE = 2e-3
"""Greatest difference of a loss, in nats per byte, after which the runs are not the same."""


def train(settings: Settings, parts: int, part: int, progress: io.TextIOBase) -> list[float]:
    """Losses of whole batches, of which this process computes `part` out of `parts`."""
    model = demo.build_model(settings.seed).to("flagos")
    trained = DistributedDataParallel(model) if parts > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=demo.LEARNING_RATE)
    ranks = f" on {parts} ranks" if parts > 1 else " in one process"
    bar = demo.Progress(f"training{ranks}", settings.steps, progress)  # type: ignore[arg-type]
    losses = []
    for step, sample in enumerate(demo.batches(settings), start=1):
        tokens = sample.chunk(parts)[part].to("flagos")
        loss = trained(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        whole = loss.detach()
        if parts > 1:
            dist.all_reduce(whole)
        losses.append(whole.item() / parts)
        bar.update(step, f"loss {losses[-1]:.4f}")
    return losses


def main() -> int:
    """Runs it; 1 when the runs are not the same."""
    parser = argparse.ArgumentParser(description="Distributed training beside one process.")
    parser.add_argument("--steps", type=int, default=20, help="training steps (default: 20)")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("run it under torchrun: torchrun --nproc-per-node=2 -m torch_fl_cli.demo_ddp")
    distributed.init_process_group("auto")
    rank, size = dist.get_rank(), dist.get_world_size()
    if demo.BATCH % size:
        parser.error(f"a batch of {demo.BATCH} samples cannot be cut into {size} parts")
    settings = Settings(steps=options.steps, seed=0, new_tokens=0, text=demo.story())
    silent = io.StringIO()
    together = train(settings, size, rank, sys.stdout if rank == 0 else silent)  # type: ignore[arg-type]
    engine = distributed.state()
    dist.barrier()
    dist.destroy_process_group()
    if rank != 0:
        return 0
    alone = train(settings, 1, 0, sys.stdout)  # type: ignore[arg-type]
    difference = max(abs(a - b) for a, b in zip(together, alone, strict=True))
    used = engine["device"][0]["engine"] if engine["device"] else engine["host"]["engine"]
    print(f"\n{size} ranks over the engine {used}, {len(alone)} steps of {demo.BATCH} samples")
    print(f"loss   {alone[0]:.4f} → {alone[-1]:.4f} nats per byte   {demo.sparkline(together)}")
    print(f"the same in one process: losses differ by {difference:.2g} nats at most")
    well = difference <= TOLERANCE and alone[-1] < alone[0]
    print("OK" if well else f"NOT OK: more than {TOLERANCE:g}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

"""Distributed training beside the same training in one process. Run once a rank.

The batch of a step is cut into one part a rank; in one process it is whole. Losses are means over the
batch, so parameters agree up to the order in which gradients are added.
"""

from __future__ import annotations

import copy
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_

from torch_fl import distributed

STEPS = 20
BATCH = 12
# Sums of float32 in another order, over 20 steps.
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


class Net(nn.Module):
    """Two ways through it, of which a batch may take one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.left = nn.Linear(32, 32)
        self.right = nn.Linear(32, 32)
        self.last = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, way: str = "both") -> torch.Tensor:
        x = torch.relu(self.first(x))
        if way != "right":
            x = x + torch.relu(self.left(x))
        if way != "left":
            x = x + torch.relu(self.right(x))
        return self.last(x)


def batch(step: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 16, generator=generator)
    return x.to(device), torch.randn(BATCH, 4, generator=generator).to(device)


def mine(x: torch.Tensor) -> torch.Tensor:
    return x.chunk(dist.get_world_size())[dist.get_rank()]


def net(device: str) -> Net:
    torch.manual_seed(0)
    return Net().to(device)


def train(
    model: nn.Module, device: str, part, ways=("both",), accumulate: int = 1, autocast=False
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        for micro in range(accumulate):
            x, y = batch(step * accumulate + micro, device)
            last = micro == accumulate - 1
            with (
                torch.autocast(device, torch.bfloat16, enabled=autocast),
                nothing() if last or not isinstance(model, DDP) else model.no_sync(),
            ):
                out = model(part(x), ways[step % len(ways)])
            (nn.functional.mse_loss(out.float(), part(y)) / accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()


def nothing():
    import contextlib

    return contextlib.nullcontext()


def same_parameters(model: nn.Module, reference: nn.Module, what: str, **close: float) -> None:
    for (name, a), b in zip(model.named_parameters(), reference.parameters(), strict=True):
        value = a.full_tensor() if isinstance(a, DTensor) else a
        torch.testing.assert_close(
            value.detach().cpu(),
            b.detach().cpu(),
            msg=lambda text, name=name: f"{what}, {name}: {text}",
            **(close or CLOSE),
        )


def ddp(device: str) -> None:
    cases = {
        "plain": ({}, {}),
        "small buckets": ({"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}, {}),
        "static graph": ({"static_graph": True}, {}),
        "unused": ({"find_unused_parameters": True}, {"ways": ("left", "both", "right")}),
        "accumulation": ({}, {"accumulate": 3}),
    }
    for name, (options, run) in cases.items():
        reference, model = net(device), DDP(net(device), **options)
        train(reference, device, lambda x: x, **run)
        train(model, device, mine, **run)
        same_parameters(model.module, reference, f"DDP {name}")
    reference, model = net(device), DDP(net(device))
    train(reference, device, lambda x: x, autocast=True)
    train(model, device, mine, autocast=True)
    same_parameters(model.module, reference, "DDP autocast", rtol=2e-2, atol=2e-2)
    # Negative control: another model is not close.
    other = net(device)
    try:
        same_parameters(other, reference, "untrained")
    except AssertionError:
        return
    raise AssertionError("the comparison accepts an untrained model")


def fsdp(device: str, folder: str) -> None:
    for name, options in {
        "plain": {},
        "offload": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
        "reduction in float32": {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32)},
    }.items():
        reference, model = net(device), net(device)
        for layer in (model.first, model.left, model.right, model.last):
            fully_shard(layer, **options)
        fully_shard(model, **options)
        for each, part in ((reference, lambda x: x), (model, mine)):
            optimizer = torch.optim.AdamW(each.parameters(), lr=0.01)
            for step in range(STEPS):
                x, y = batch(step, device)
                nn.functional.mse_loss(each(part(x)), part(y)).backward()
                if name != "offload":
                    clip_grad_norm_(each.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
        # Adam divides by roots of small numbers: rounding shows more than with SGD.
        same_parameters(model, reference, f"FSDP2 {name}", rtol=2e-3, atol=2e-4)
        if name == "plain":
            dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
            dist.barrier()
            if dist.get_rank() == 0:
                torch.save(reference.state_dict(), f"{folder}/reference.pt")


def load(device: str, folder: str) -> None:
    """A checkpoint of another number of ranks."""
    model = net(device)
    fully_shard(model)
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    reference = net(device)
    reference.load_state_dict(torch.load(f"{folder}/reference.pt", weights_only=True))
    same_parameters(model, reference, "loaded", rtol=2e-3, atol=2e-4)


def dtensor(device: str) -> None:
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    torch.manual_seed(1)
    whole = torch.randn(8, 12).to(device)
    for placement in (Shard(0), Shard(1), Replicate()):
        x = distribute_tensor(whole, mesh, [placement])
        assert torch.equal(x.full_tensor(), whole)
        assert torch.equal(x.redistribute(placements=[Shard(0)]).full_tensor(), whole)
        assert torch.equal(x.redistribute(placements=[Shard(1)]).full_tensor(), whole)
        torch.testing.assert_close((x @ x.t()).full_tensor(), whole @ whole.t())
        torch.testing.assert_close(x.sum().full_tensor(), whole.sum())
    reference = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).to(device)
    model = parallelize_module(
        copy.deepcopy(reference), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    for each in (reference, model):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.05, foreach=False)
        for step in range(STEPS):
            x, y = batch(step, device)
            nn.functional.mse_loss(each(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    same_parameters(model, reference, "tensor parallel")


def main() -> None:
    device, what, folder = sys.argv[1:4]
    distributed.init_process_group(f"{device}:flagos" if device == "cpu" else "flagos")
    torch.set_num_threads(1)
    if what == "load":
        load(device, folder)
    else:
        ddp(device)
        dtensor(device)
        fsdp(device, folder)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A small transformer under FSDP2 in mixed precision and under DDP, beside gloo on the CPU. Run once a rank.

Prints the operators that fell back to the CPU while it trained. At the end nothing of the group may be left.
"""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from core.vendors.ascend.tests import simulator
from torch_fl import distributed
from torch_fl.aten.routing import counters

STEPS, BATCH, LENGTH, WORDS, WIDTH = 4, 4, 8, 32, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.qkv(self.before(x)).unflatten(-1, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        q, k, v = split.unbind()
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(x)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.last = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def losses(
    model: nn.Module, device: str, optimizer: torch.optim.Optimizer, **autocast
) -> list[float]:
    out = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=generator)
        mine = tokens.chunk(dist.get_world_size())[dist.get_rank()].to(device)
        with torch.autocast(device, **autocast) if autocast else torch.enable_grad():
            logits = model(mine[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), mine[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        out.append(loss.item())
    return out


def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def start() -> Transformer:
    torch.manual_seed(0)
    return Transformer()


def fully_sharded(gloo: dist.ProcessGroup) -> None:
    """Weights in bfloat16, gradients reduced in float32."""
    ours, theirs = start().to("flagos"), start()
    sharded(ours, init_device_mesh("flagos", (dist.get_world_size(),)))
    sharded(theirs, DeviceMesh.from_group(gloo, "cpu"))
    with counted():
        there = losses(ours, "flagos", torch.optim.AdamW(ours.parameters(), 1e-2, foreach=True))
    here = losses(theirs, "cpu", torch.optim.AdamW(theirs.parameters(), 1e-2))
    torch.testing.assert_close(there, here, rtol=0.02, atol=0.02)
    assert there[0] != there[-1]


def data_parallel(gloo: dist.ProcessGroup) -> None:
    """Under autocast; afterwards all ranks have the same bits."""
    ours, theirs = start().to("flagos"), start()
    parallel = DistributedDataParallel(ours, gradient_as_bucket_view=True)
    with counted():
        there = losses(
            parallel,
            "flagos",
            torch.optim.AdamW(ours.parameters(), 1e-2, fused=True),
            dtype=torch.bfloat16,
        )
    beside = DistributedDataParallel(theirs, process_group=gloo)
    optimizer = torch.optim.AdamW(theirs.parameters(), 1e-2)
    here = losses(beside, "cpu", optimizer, dtype=torch.bfloat16)
    torch.testing.assert_close(there, here, rtol=0.02, atol=0.02)
    whole = torch.cat([each.detach().flatten() for each in ours.parameters()])
    every = whole.new_empty(dist.get_world_size(), whole.numel())
    dist.all_gather_into_tensor(every, whole)
    every = every.cpu()
    assert all(torch.equal(each, every[0]) for each in every)


def normalized_together(x: torch.Tensor, norm: nn.Module) -> list[torch.Tensor]:
    """Of these rows: the results and their gradient; of the module: its parameters' gradients and its statistics."""
    x = x.requires_grad_()
    y = norm(x)
    (
        y * torch.linspace(-1, 1, y.numel() // len(y), device=y.device).view_as(y[0])
    ).square().sum().backward()
    assert x.grad is not None
    return [
        y.detach(),
        x.grad,
        norm.weight.grad,
        norm.bias.grad,
        norm.running_mean,
        norm.running_var,
    ]


def normalized() -> None:
    """SyncBatchNorm of every rank's rows is BatchNorm of all."""
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = torch.randn(4 * world, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    ours = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3)).to("flagos")
    with counted():
        there = normalized_together(rows.chunk(world)[rank].clone().to("flagos"), ours)
    for gradient in there[2:4]:
        dist.all_reduce(gradient)
    here = normalized_together(rows, nn.BatchNorm2d(3))
    here[:2] = [of_all.chunk(world)[rank] for of_all in here[:2]]
    for mine, expected in zip(there, here, strict=True):
        torch.testing.assert_close(mine.cpu(), expected, rtol=1e-4, atol=1e-4)


def unequal() -> None:
    """A list of tensors of other sizes each: every part comes from its rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty(1 + each, device="flagos") for each in range(world)]
    dist.all_gather(parts, torch.full((1 + rank,), float(rank), device="flagos"))
    assert [part.tolist() for part in parts] == [
        [float(each)] * (1 + each) for each in range(world)
    ]
    with pytest.raises(ValueError, match="to a part of the list of sizes"):
        dist.all_gather(parts, torch.ones(3 + rank, device="flagos"))


fallen: Counter[str] = Counter()


@contextmanager
def counted() -> Iterator[None]:
    """Adds what falls back to the CPU to `fallen`."""
    before = Counter({op: numbers["fallbacks"] for op, numbers in counters().items()})
    yield
    fallen.update(
        Counter({op: numbers["fallbacks"] for op, numbers in counters().items()}) - before
    )


def life(name: str, with_shards: bool = False) -> int:
    """A group's life: the streams that are there at its end."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(f"{os.environ['RENDEZVOUS']}/{name}", world)
    distributed.init_process_group("flagos", store=store, rank=rank, world_size=world)
    torch.set_num_threads(1)
    gloo = dist.new_group(list(range(dist.get_world_size())), backend="gloo")
    if with_shards:
        fully_sharded(gloo)
    data_parallel(gloo)
    normalized()
    unequal()
    dist.barrier()
    assert simulator.live("communicators") == 1
    flagcx = os.environ.get("FLAGOS_COMM_ENGINE") == "flagcx"
    assert simulator.calls("flagcxAllReduce" if flagcx else "HcclAllReduce") > 0
    dist.destroy_process_group()
    gc.collect()  # modules hold the group
    # What FSDP2 has wrapped is held by torch, with its group.
    assert simulator.live("communicators") == with_shards, "the group has left communicators"
    return simulator.live("streams")


def main() -> None:
    if "ASCEND_RT_VISIBLE_DEVICES" in os.environ:
        assert torch.flagos.device_count() == 1
    streams = life("first")
    more = life("second")
    # A group takes the next stream of the device's pool, which has so many and keeps them.
    assert more <= streams + 1, f"{streams} streams after one life of a group, {more} after two"
    life("third", with_shards=True)
    print("fallbacks", json.dumps(fallen))


if __name__ == "__main__":
    main()

"""Overlapping groups with many calls in flight, against gloo. Run once a rank: groups.py DEVICE CALLS.

All ranks of a group make its calls in one order, as they must. How the calls of several groups lie between
each other is another order on every rank, and so is the order in which their ends are waited for.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

SIZES = [0, 1, 3, 64, 1001, 5003]
DTYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN]


@dataclass
class Pair:
    """The same ranks over flagos and over gloo."""

    ranks: list[int]
    group: dist.ProcessGroup
    gloo: dist.ProcessGroup


@dataclass
class Call:
    """One call of a rank, and the result that it must get."""

    where: str
    start: Callable[[], dist.Work]
    result: torch.Tensor
    expected: torch.Tensor


def make_call(pair: Pair, index: int, device: str) -> Call:
    """One call of a group. All its ranks make the same, from the group's ranks and the index."""
    chance = random.Random(f"{pair.ranks} {index}")
    kind = chance.choice(
        ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce"]
    )
    size, dtype, op = chance.choice(SIZES), chance.choice(DTYPES), chance.choice(OPS)
    group, n = pair.group, len(pair.ranks)
    root = chance.choice(pair.ranks)
    generator = torch.Generator().manual_seed(index * 8 + group.rank())
    mine = torch.randint(0, 9, (size,), generator=generator).to(dtype)
    many = torch.randint(0, 9, (n * size,), generator=generator).to(dtype)
    where = f"call {index} of {pair.ranks}: {kind} of {size} x {dtype}, {op}, root {root}"
    expected = mine.clone()
    result = mine.to(device, copy=True)
    if kind == "all_reduce":
        dist.all_reduce(expected, op, group=pair.gloo)
        start = partial(dist.all_reduce, result, op, group=group, async_op=True)
    elif kind == "broadcast":
        dist.broadcast(expected, root, group=pair.gloo)
        start = partial(dist.broadcast, result, root, group=group, async_op=True)
    elif kind == "reduce":
        dist.reduce(expected, root, op, group=pair.gloo)
        if dist.get_rank() != root:
            expected = mine  # gloo leaves its own sums there
        start = partial(dist.reduce, result, root, op, group=group, async_op=True)
    elif kind == "all_gather":
        parts = [torch.empty_like(mine) for _ in pair.ranks]
        dist.all_gather(parts, mine, group=pair.gloo)
        expected = torch.cat(parts)
        given, result = result, torch.empty_like(expected, device=device)
        start = partial(dist.all_gather_into_tensor, result, given, group=group, async_op=True)
    elif kind == "reduce_scatter":
        whole = many.clone()
        dist.all_reduce(whole, op, group=pair.gloo)
        expected = whole[group.rank() * size : (group.rank() + 1) * size]
        given = many.to(device)
        start = partial(dist.reduce_scatter_tensor, result, given, op, group=group, async_op=True)
    else:
        expected = torch.empty_like(many)
        dist.all_to_all_single(expected, many, group=pair.gloo)
        given, result = many.to(device), torch.empty_like(many, device=device)
        start = partial(dist.all_to_all_single, result, given, group=group, async_op=True)
    return Call(where, start, result, expected)


def main() -> None:
    device, count = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("flagos")
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = list(range(size))
    # Neighbours, everyone but the first, every other one, and the first with the last.
    chosen = [everyone, *([r, (r + 1) % size] for r in everyone), everyone[1:], everyone[::2]]
    chosen.append([0, size - 1])
    pairs = []
    for ranks in chosen:
        ranks = sorted(ranks)
        both = dist.new_group(ranks, backend="flagos"), dist.new_group(ranks, backend="gloo")
        if rank in ranks:
            pairs.append(Pair(ranks, *both))
    lists = [[make_call(pair, index, device) for index in range(count)] for pair in pairs]
    order = random.Random(rank)
    turns = [which for which, calls in enumerate(lists) for _ in calls]
    order.shuffle(turns)
    left = [iter(calls) for calls in lists]
    # A rank that waited here for calls that other ranks make later would wait for ever, by the program's fault.
    works = [next(left[which]).start() for which in turns]
    order.shuffle(works)
    for work in works:
        work.wait()
    for call in (call for calls in lists for call in calls):
        assert torch.equal(call.result.cpu(), call.expected), call.where
    dist.barrier()
    dist.destroy_process_group()
    print(f"checked {sum(map(len, lists))} calls of {len(lists)} groups")


if __name__ == "__main__":
    main()

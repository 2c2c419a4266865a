"""torch.distributed beyond single collectives. Run once a rank; the parts named, or all."""

from __future__ import annotations

import copy
import datetime
import functools
import json
import os
import sys

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from torch_fl import distributed


def objects(device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone: list[object] = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "tensor": torch.full((2,), rank)})
    assert [x["rank"] for x in everyone] == list(range(size))
    into: list[object] | None = [None] * size if rank == 1 else None
    dist.gather_object(("from", rank), into, dst=1)
    assert into is None or into == [("from", r) for r in range(size)]
    several: list[object] = [rank, "x"] if rank == 0 else [None, None]
    dist.broadcast_object_list(several, src=0)
    assert several == [0, "x"]
    mine: list[object] = [None]
    dist.scatter_object_list(mine, [r * 10 for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [rank * 10]


def transfers(device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    # Tags arrive in another order than they were sent, both ways at once, larger than what is buffered.
    if rank < 2:
        peer = 1 - rank
        sent = {
            tag: torch.full((300_000,), float(rank * 10 + tag), device=device) for tag in (1, 2)
        }
        works = [dist.isend(sent[tag], peer, tag=tag) for tag in (1, 2)]
        for tag in (2, 1):
            x = torch.empty(300_000, device=device)
            dist.recv(x, peer, tag=tag)
            assert bool((x == peer * 10 + tag).all())
        for work in works:
            work.wait()
    if rank == 0:
        sources = set()
        for _ in range(size - 1):
            x = torch.empty(3, device=device)
            source = dist.recv(x)
            assert x.tolist() == [source] * 3
            sources.add(source)
        assert sources == set(range(1, size))
    else:
        dist.send(torch.full((3,), float(rank), device=device), 0)


def coalescing(device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    xs = [torch.full((n,), float(rank + 1), device=device) for n in (1, 1000, 70_000)]
    with dist._coalescing_manager(device=torch.device(device), async_ops=True) as manager:
        for x in xs:
            dist.all_reduce(x)
    manager.wait()
    total = size * (size + 1) / 2
    assert all(bool((x == total).all()) for x in xs)
    outs = [torch.empty(size * n, device=device) for n in (3, 5)]
    with dist._coalescing_manager(device=torch.device(device)):
        for out, n in zip(outs, (3, 5), strict=True):
            dist.all_gather_into_tensor(out, torch.full((n,), float(rank), device=device))
    for out, n in zip(outs, (3, 5), strict=True):
        assert out.tolist() == [r for r in range(size) for _ in range(n)]
    dist.all_reduce_coalesced(xs)
    assert all(bool((x == total * size).all()) for x in xs)


def functionals(device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    x = torch.arange(size * 2.0, device=device) + rank
    total = size * torch.arange(size * 2.0) + size * (size - 1) / 2
    assert torch.equal(functional.all_reduce(x, "sum", group).cpu(), total)
    assert functional.all_gather_tensor(x, 0, group).sum() == total.sum()
    part = functional.reduce_scatter_tensor(x, "sum", 0, group)
    assert torch.equal(part.cpu(), total.chunk(size)[rank])
    assert torch.equal(functional.broadcast(x, 0, group).cpu(), torch.arange(size * 2.0))
    assert functional.all_to_all_single(x, None, None, group).sum().isfinite()


def futures(device: str) -> None:
    size = dist.get_world_size()
    x = torch.ones(100_000, device=device)
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    assert bool((doubled.wait() == 2 * size).all())
    assert work.is_completed()
    assert work.result()[0].data_ptr() == x.data_ptr()
    assert work.wait()


def groups(device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    backend = world._get_backend(torch.device(device))
    assert backend.name() == "flagos" and backend.size() == size and backend.rank() == rank
    assert backend.supports_splitting and backend.supports_coalescing
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 1
    x = torch.full((4,), float(rank), device=device)
    like_me = [r for r in range(size) if r % 2 == rank % 2]
    split = world.split_group(like_me, group_name=f"like {rank % 2}")
    split.allreduce([x]).wait()
    assert x.tolist() == [sum(like_me)] * 4
    some = dist.new_group([0, 1])
    if rank < 2:
        x.fill_(rank)
        dist.all_reduce(x, group=some)
        assert x.tolist() == [1] * 4
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    known = distributed.state(device=device)
    assert known["rank"] == rank and known["calls"][-1]["collective"] == "barrier"
    json.dumps(known)
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=33))


def by_name(device: str) -> None:
    """Functions that torch has for its own backends alone."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [[0], list(range(1, size))]
    part = dist.split_group(split_ranks=parts)
    assert part is not None and part.size() == (1 if rank == 0 else size - 1)
    x = torch.full((2,), float(rank), device=device)
    dist.all_reduce(x, group=part)
    assert x.tolist() == [float(sum(parts[min(rank, 1)]))] * 2
    alone = dist.split_group(split_ranks=[[0]])
    assert (alone is None) == (rank != 0)
    for wrong, message in ([[0, 0]], "duplicate"), ([[size]], "not one of"), ([[]], "empty"):
        with pytest.raises(ValueError, match=message):
            dist.split_group(split_ranks=wrong)
    dist.monitored_barrier(wait_all_ranks=True)


def sparse(device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    # A rank gives as many values as its number: the first gives none.
    places = torch.arange(rank).reshape(1, -1)
    x = torch.sparse_coo_tensor(places, torch.ones(rank, 3), (size, 3), device=device)
    dist.all_reduce(x)
    expected = torch.tensor([float(size - 1 - place) for place in range(size)])
    assert x.is_coalesced() and torch.equal(x.to_dense().cpu(), expected[:, None].expand(size, 3))
    ours = torch.nn.Embedding(8, 3, sparse=True)
    theirs = copy.deepcopy(ours).requires_grad_()
    ddp = torch.nn.parallel.DistributedDataParallel(ours.to(device))
    rows = torch.tensor([[0, 0, r] for r in range(size)])
    optimizer = torch.optim.SparseAdam(list(ddp.parameters()))
    for _ in range(2):
        optimizer.zero_grad()
        ddp(rows[rank].to(device)).square().sum().backward()
        theirs.zero_grad()
        theirs(rows).square().sum().div(size).backward()
        torch.testing.assert_close(ours.weight.grad.to_dense().cpu(), theirs.weight.grad.to_dense())
        assert ours.weight.grad.layout == torch.sparse_coo


def normalization_over_the_ranks(device: str) -> None:
    if device == "cpu":
        return  # torch refuses it there
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype, tolerance in (torch.float32, 1e-5), (torch.bfloat16, 2e-2):
        batch = torch.randn(2 * size, 3, 4, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
        whole = torch.nn.BatchNorm2d(3)
        ours = torch.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)).to(device)
        ddp = torch.nn.parallel.DistributedDataParallel(ours)
        mine = batch[2 * rank : 2 * rank + 2].to(device).requires_grad_()
        all_of_it = batch.float().requires_grad_()
        out, expected = ddp(mine), whole(all_of_it)
        out.float().pow(3).mean().backward()
        expected.pow(3).mean().backward()
        near = functools.partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
        near(out.float().cpu(), expected[2 * rank : 2 * rank + 2])
        near(mine.grad.float().cpu(), all_of_it.grad[2 * rank : 2 * rank + 2] * size)
        for name, value in whole.named_buffers():
            near(ours.get_buffer(name).cpu(), value)
        near(ours.weight.grad.cpu(), whole.weight.grad)
        near(ours.bias.grad.cpu(), whole.bias.grad)


def refusals(device: str) -> None:
    x = torch.ones(4, device=device)
    with pytest.raises(ValueError, match="for sums: call to_dense"):
        dist.all_reduce(torch.ones(2, 2, device=device).to_sparse(), dist.ReduceOp.MAX)
    with pytest.raises(
        ValueError, match=r"rank \d has Float of \[\d, 2\] with 2 sparse dimensions"
    ):
        dist.all_reduce(torch.ones(2 + dist.get_rank(), 2, device=device).to_sparse())
    for call, message in {
        lambda: dist.all_gather_into_tensor(torch.empty(3, device=device), x): "elements of Float",
        lambda: dist.all_reduce(x, dist.ReduceOp.BAND): "band is not defined on float32",
    }.items():
        with pytest.raises((ValueError, NotImplementedError, RuntimeError), match=message):
            call()
    dist.barrier()  # a refused call has sent nothing


def main() -> None:
    device = sys.argv[1]
    # A device that is told is connected at once, and groups can be split.
    bound = None
    if device == "flagos":
        local = int(os.environ["LOCAL_RANK"])
        bound = torch.device("flagos", local % torch.flagos.device_count())
        torch.flagos.set_device(bound)
    dist.init_process_group("flagos", device_id=bound)
    parts = (
        objects, transfers, coalescing, functionals, futures, groups, by_name, sparse,
        normalization_over_the_ranks, refusals,
    )  # fmt: skip
    torch.manual_seed(0)
    named = [part for part in parts if part.__name__ in sys.argv[2:]]
    for part in named or parts:
        if part is objects and device == "cpu":
            continue  # torch decides where these are
        if part in (groups, sparse, refusals) and "TORCH_DISTRIBUTED_DEBUG" in sys.argv:
            continue  # asks the backend itself, which is wrapped then
        part(device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Every collective on `device` against gloo on the CPU, on the same inputs. Run once a rank."""

from __future__ import annotations

import itertools
import sys
from functools import cache

import pytest
import torch
import torch.distributed as dist

from torch_fl import distributed

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
]
ONLY_MOVED = [torch.int16, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16]
# Sizes: none, one element, an odd number, more than one step of the engine.
SIZES = [0, 1, 37, int(sys.argv[2]) if len(sys.argv) > 2 else 300_007]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
# What lacks reductions, for which the ranks gather their data: `hccl`, HCCL on Ascend's A2 and FlagCX over it; `nccl`,
# NCCL, those with its interface and FlagCX over them. Without a name everything is reduced by the engine.
LIBRARY = sys.argv[3] if len(sys.argv) > 3 else None
BITWISE = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]

checked = 0


@cache
def values(dtype: torch.dtype, size: int, seed: int, strided: bool = False) -> torch.Tensor:
    """The same values on every rank for the same seed; small, so that products stay exact. Not to be written."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size, 2) if strided else (size,)
    x = torch.randint(0, 2 if dtype == torch.bool else 3, shape, generator=generator)
    if dtype.is_floating_point or dtype.is_complex:
        x = x + torch.randint(0, 4, shape, generator=generator) / 4
    return x.to(dtype)[:, 1] if strided else x.to(dtype)


def same(result: torch.Tensor, expected: torch.Tensor, where: str) -> None:
    """Bit for bit, but for half precision, where gloo rounds at each rank and flagos once."""
    global checked
    checked += 1
    result = result.cpu()
    assert result.dtype == expected.dtype and result.shape == expected.shape, where
    if expected.dtype in (torch.float16, torch.bfloat16):
        torch.testing.assert_close(result, expected, msg=lambda text: f"{where}: {text}")
    elif expected.element_size() == 1:
        assert torch.equal(result.view(torch.uint8), expected.view(torch.uint8)), where
    else:
        assert torch.equal(result, expected), f"{where}: {result} {expected}"


def wait(work) -> None:
    if work is not None:
        work.wait()


def check_reductions(device: str, group, gloo, ranks: list[int]) -> None:
    me, n = group.rank(), group.size()
    for dtype, size, strided, asynchronous in itertools.product(
        DTYPES, SIZES, (False, True), (False, True)
    ):
        if strided and size > 1000:
            continue
        ops = OPS + (BITWISE if not dtype.is_floating_point else [])
        for op in ops if size < 1000 else OPS[:1]:
            if dtype == torch.bool and op == dist.ReduceOp.SUM:
                continue  # gloo adds the bytes
            where = f"{op} {dtype} {size} strided={strided} async={asynchronous} on {device}"
            x = values(dtype, size, me, strided)
            expected = x.clone()
            mine = base = torch.empty(0)
            if strided:  # a view stays a view
                base = torch.zeros(size, 2, dtype=dtype, device=device)
                mine = base[:, 1]
                mine.copy_(x)
            else:
                mine = x.to(device, copy=True)
            dist.all_reduce(expected, op, group=gloo)
            wait(dist.all_reduce(mine, op, group=group, async_op=asynchronous))
            same(mine, expected, f"all_reduce {where}")
            if op == dist.ReduceOp.SUM and device == "flagos" and not asynchronous:
                check_out_of_place(base[:, 1] if strided else mine, x, expected, group, where)
            if asynchronous or strided:
                continue
            for root in ranks:
                expected, mine = x.clone(), x.to(device, copy=True)
                dist.reduce(expected, root, op, group=gloo)
                dist.reduce(mine, root, op, group=group)
                is_root = dist.get_rank() == root
                same(mine, expected if is_root else x, f"reduce to {root} {where}")
            whole = values(dtype, size * n, me + 7)
            expected = whole.clone()
            dist.all_reduce(expected, op, group=gloo)
            out = torch.empty(size, dtype=dtype, device=device)
            dist.reduce_scatter_tensor(out, whole.to(device), op, group=group)
            same(out, expected.chunk(n)[me] if size else expected, f"reduce_scatter_tensor {where}")
            out.zero_()
            parts = [part.to(device) for part in whole.reshape(n, size)]
            dist.reduce_scatter(out, parts, op, group=group)
            same(out, expected.chunk(n)[me] if size else expected, f"reduce_scatter {where}")


def check_out_of_place(
    given: torch.Tensor, x: torch.Tensor, expected: torch.Tensor, group, where: str
) -> None:
    given.copy_(x)
    total = torch.empty_like(given)
    torch.ops.flagos.all_reduce_into(group.boxed(), total, given)
    same(total, expected, f"all_reduce_into {where}")
    same(given, x, f"the input of all_reduce_into {where}")
    if x.numel() > 1:
        with pytest.raises(ValueError, match="needs parts of one type and size"):
            torch.ops.flagos.all_reduce_into(group.boxed(), total[1:], given)


def check_movement(device: str, group, gloo, ranks: list[int]) -> None:
    me, n = group.rank(), group.size()
    for dtype, size in itertools.product(DTYPES + ONLY_MOVED, SIZES):
        where = f"{dtype} {size} on {device}"
        inputs = [values(dtype, size, rank) for rank in range(n)]
        mine = inputs[me].to(device)
        gathered = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(gathered, mine, group=group)
        for rank in range(n):
            same(gathered[rank], inputs[rank], f"all_gather {where}")
        whole = torch.empty(size * n, dtype=dtype, device=device)
        wait(dist.all_gather_into_tensor(whole, mine, group=group, async_op=True))
        same(whole, torch.cat(inputs), f"all_gather_into_tensor {where}")
        for index, root in enumerate(ranks):
            is_root = index == me
            x = mine.clone()
            dist.broadcast(x, root, group=group)
            same(x, inputs[index], f"broadcast {where}")
            into = [torch.empty_like(mine) for _ in range(n)] if is_root else None
            dist.gather(mine, into, root, group=group)
            for rank, part in enumerate(into or []):
                same(part, inputs[rank], f"gather {where}")
            out = torch.empty_like(mine)
            dist.scatter(
                out, [x.to(device) for x in inputs] if is_root else None, root, group=group
            )
            same(out, inputs[me], f"scatter {where}")
        outgoing = torch.cat([values(dtype, size, me * n + rank) for rank in range(n)]).to(device)
        incoming = torch.cat([values(dtype, size, rank * n + me) for rank in range(n)])
        out = torch.empty_like(outgoing)
        dist.all_to_all_single(out, outgoing, group=group)
        same(out, incoming, f"all_to_all_single {where}")
        amount = [[(a * 3 + b * 2) % 5 * (size // 7) for b in range(n)] for a in range(n)]

        def pair(a: int, b: int, dtype=dtype, amount=amount) -> torch.Tensor:
            return values(dtype, amount[a][b], a * n + b)

        out = torch.empty(sum(amount[a][me] for a in range(n)), dtype=dtype, device=device)
        dist.all_to_all_single(
            out,
            torch.cat([pair(me, b) for b in range(n)]).to(device),
            [amount[a][me] for a in range(n)],
            amount[me],
            group=group,
        )
        same(out, torch.cat([pair(a, me) for a in range(n)]), f"all_to_all_single uneven {where}")
        lists = [torch.empty(amount[a][me], dtype=dtype, device=device) for a in range(n)]
        dist.all_to_all(lists, [pair(me, b).to(device) for b in range(n)], group=group)
        for a in range(n):
            same(lists[a], pair(a, me), f"all_to_all {where}")
        # Around the ring, twice at once.
        right, left = ranks[(me + 1) % n], ranks[(me - 1) % n]
        first, second = torch.empty_like(mine), torch.empty_like(mine)
        if n > 1:
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, mine, right, group),
                    dist.P2POp(dist.irecv, first, left, group),
                    dist.P2POp(dist.isend, mine, left, group),
                    dist.P2POp(dist.irecv, second, right, group),
                ]
                if n > 2
                else [
                    dist.P2POp(dist.isend, mine, right, group),
                    dist.P2POp(dist.irecv, first, left, group),
                ]
            )
            for work in works:
                work.wait()
            same(first, inputs[(me - 1) % n], f"batch_isend_irecv {where}")
            # To itself too, as schedules of pipelines with several stages on a rank do.
            half = mine[: mine.numel() // 2]
            own = [torch.empty_like(mine), torch.empty_like(half)]
            for work in dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, mine, ranks[me], group),
                    dist.P2POp(dist.isend, mine, right, group),
                    dist.P2POp(dist.irecv, own[0], ranks[me], group),
                    dist.P2POp(dist.isend, half, ranks[me], group),
                    dist.P2POp(dist.irecv, first.zero_(), left, group),
                    dist.P2POp(dist.irecv, own[1], ranks[me], group),
                ]
            ):
                work.wait()
            same(own[0], mine.cpu(), f"to itself {where}")
            same(own[1], half.cpu(), f"to itself again {where}")
            same(first, inputs[(me - 1) % n], f"beside a transfer to itself {where}")
            lone = dist.P2POp(dist.isend, mine, ranks[me], group)
            short = dist.P2POp(dist.irecv, mine.new_empty(mine.numel() + 1), ranks[me], group)
            for batch, complaint in (
                ([lone], "receives 0 from itself"),
                ([lone, short], "to itself sends"),
            ):
                with pytest.raises(ValueError, match=complaint):
                    dist.batch_isend_irecv(batch)
            if n > 2:
                same(second, inputs[(me + 1) % n], f"batch_isend_irecv {where}")


def check_averages(device: str, group) -> None:
    """Reductions that gloo lacks, compared with a sum."""
    n = group.size()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
        inputs = [values(dtype, 1000, rank) * 8 for rank in range(n)]
        mine = inputs[group.rank()].to(device, copy=True)
        dist.all_reduce(mine, dist.ReduceOp.AVG, group=group)
        exact = torch.stack(inputs).double().sum(0) / n
        if dtype == torch.int32:
            same(mine, exact.trunc().to(dtype), "avg")
        else:
            torch.testing.assert_close(mine.cpu(), exact.to(dtype))
        if dtype.is_floating_point:
            mine = inputs[group.rank()].to(device, copy=True)
            dist.all_reduce(mine, dist._make_nccl_premul_sum(0.5), group=group)
            torch.testing.assert_close(
                mine.cpu(), (torch.stack(inputs).double().sum(0) / 2).to(dtype)
            )
    complex_ = torch.full((3,), complex(group.rank(), 1), device=device)
    dist.all_reduce(complex_, group=group)
    assert complex_.tolist() == [complex(n * (n - 1) / 2, n)] * 3
    with pytest.raises(NotImplementedError, match="float8_e4m3fn cannot be reduced"):
        dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn, device=device), group=group)


def check_what_is_gathered(device: str, group) -> None:
    """Types that gloo does not reduce; no library has an exclusive or, and too many bytes are an error."""
    n = group.size()
    for dtype, most in (torch.int16, 30_000), (torch.uint16, 60_000):
        mine = torch.tensor([group.rank() + 1, most // n], dtype=dtype)
        total, average = mine.to(device, copy=True), mine.to(device, copy=True)
        dist.all_reduce(total, group=group)
        dist.all_reduce(average, dist.ReduceOp.AVG, group=group)
        same(total, torch.tensor([n * (n + 1) // 2, most // n * n], dtype=dtype), "sum")
        same(average, torch.tensor([(n + 1) // 2, most // n], dtype=dtype), "avg")
    if LIBRARY is None:
        return
    ours = [known for known in distributed.state(group)["device"] if "gathered" in known]
    assert any(known["gathered"]["bxor of int32"]["calls"] > 0 for known in ours), ours
    bound = torch.ones((1 << 20) // 8 // n, dtype=torch.int64, device=device)
    dist.all_reduce(bound, dist.ReduceOp.BXOR, group=group)
    assert bool((bound == n % 2).all())
    more = torch.ones(bound.numel() + 1, dtype=torch.int64, device=device)
    with pytest.raises(
        NotImplementedError, match=r"no bxor of int64, and flagos gathers no more than 1\.0 MiB"
    ):
        dist.all_reduce(more, dist.ReduceOp.BXOR, group=group)


def main() -> None:
    device = sys.argv[1]
    dist.init_process_group("flagos")
    world = dist.get_world_size()
    everyone = list(range(world))
    groups = [(everyone, dist.group.WORLD, dist.new_group(everyone, backend="gloo"))]
    # Groups that share ranks, used one after the other without a barrier in between.
    for ranks in ([0, 1], everyone[1:]) if world > 2 else ():
        both = dist.new_group(ranks, backend="flagos"), dist.new_group(ranks, backend="gloo")
        if dist.get_rank() in ranks:
            groups.append((ranks, *both))
    for ranks, group, gloo in groups:
        check_reductions(device, group, gloo, ranks)
        check_movement(device, group, gloo, ranks)
        check_averages(device, group)
        check_what_is_gathered(device, group)
    # Many calls in flight on several groups, in one order on all ranks.
    works, results = [], []
    for round_ in range(50):
        for ranks, group, _ in groups:
            x = torch.full((round_ * 31 + 1,), float(dist.get_rank() + 1), device=device)
            works.append(dist.all_reduce(x, group=group, async_op=True))
            results.append((x, sum(rank + 1 for rank in ranks)))
    for work, (x, expected) in zip(works, results, strict=True):
        work.wait()
        assert bool((x == expected).all())
    dist.barrier()
    dist.destroy_process_group()
    print(f"checked {checked}")


if __name__ == "__main__":
    main()

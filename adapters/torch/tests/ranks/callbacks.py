"""Callbacks of futures that wait for other collectives, as torch's own hooks do. Run once a rank."""

from __future__ import annotations

import copy
import datetime
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


def chained(device: str) -> None:
    """Each of several calls under way has a callback that makes another call and waits for it."""
    size, depth = dist.get_world_size(), 4

    def then(left: int) -> Any:
        def work(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            x = future.value()[0] / size
            if left:
                following = dist.all_reduce(x, async_op=True).get_future().then(then(left - 1))
                return following.wait()
            return x

        return work

    for _ in range(5):
        # One after the other, so that callbacks make their calls in the same order on every rank.
        for start in range(3):
            x = torch.full((1000,), float(start), device=device)
            future = dist.all_reduce(x, async_op=True).get_future().then(then(depth))
            assert future.wait().eq(start).all()
    # No waiting in between: these callbacks make no calls.
    futures = [
        dist.all_reduce(torch.ones(100, device=device), async_op=True)
        .get_future()
        .then(lambda it: it.value()[0] * 2)
        for _ in range(50)
    ]
    assert all(future.wait().eq(2 * size).all() for future in futures)


def outer_waits(device: str) -> None:
    """A callback waits for a call that was queued before it ran."""
    for _ in range(20):
        x, y = torch.ones(10, device=device), torch.ones(1 << 20, device=device)
        first, second = dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)

        def after(
            future: torch.futures.Future[list[torch.Tensor]],
            second: Any = second,
            y: torch.Tensor = y,
        ) -> float:
            second.wait()
            return float(future.value()[0].sum() + y[0])

        assert first.get_future().then(after).wait() == 11.0 * dist.get_world_size()


def hooks(device: str) -> None:
    """Training with torch's hooks, beside gloo's on the CPU."""
    gloo = dist.new_group(backend="gloo")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    for name in ("powerSGD", "bf16", "fp16"):
        results = []
        for where, group in ((device, None), ("cpu", gloo)):
            model = DistributedDataParallel(copy.deepcopy(net).to(where), process_group=group)
            if name == "powerSGD":
                state = powerSGD_hook.PowerSGDState(
                    group,
                    matrix_approximation_rank=2,
                    start_powerSGD_iter=2,
                    min_compression_rate=0.5,
                )
                model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            else:
                model.register_comm_hook(group, getattr(default_hooks, f"{name}_compress_hook"))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            generator = torch.Generator().manual_seed(dist.get_rank())
            for _ in range(6):
                x = torch.randn(8, 64, generator=generator).to(where)
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            results.append([p.detach().cpu() for p in model.parameters()])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def profiled(device: str) -> None:
    """Calls show in torch's profiler by their names, whether they are waited for or not."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(4, device=device))
        dist.broadcast(torch.ones(4, device=device), 0, async_op=True).wait()
        dist.barrier()
    names = {event.name for event in profiler.events()}
    assert {"flagos:all_reduce", "flagos:broadcast", "flagos:barrier"} <= names, names


def uneven(device: str) -> None:
    """Parts of different sizes, as NCCL takes them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(float(rank + 1), device=device) + 10 * rank
    parts = [torch.empty(other + 1, device=device) for other in range(size)]
    dist.all_gather(parts, mine)
    assert [part.tolist() for part in parts] == [
        [10.0 * r + i for i in range(r + 1)] for r in range(size)
    ]
    assert mine.tolist() == [10.0 * rank + i for i in range(rank + 1)]
    inputs = [torch.full((other + 1,), float(rank + 1), device=device) for other in range(size)]
    kept = [part.clone() for part in inputs]
    output = torch.empty(rank + 1, device=device)
    dist.reduce_scatter(output, inputs)
    assert output.tolist() == [size * (size + 1) / 2] * (rank + 1)
    assert all(torch.equal(a, b) for a, b in zip(inputs, kept, strict=True))


def main() -> None:
    device = sys.argv[1]
    dist.init_process_group("cpu:flagos,flagos:flagos", timeout=datetime.timedelta(seconds=60))
    for what in (chained, outer_waits, hooks, profiled, uneven):
        what(device)
        dist.barrier()
        print("passed", what.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

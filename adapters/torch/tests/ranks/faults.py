"""One rank fails in one way; the others print the error they got. Run once a rank."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from torch_fl import distributed

TIMEOUT = datetime.timedelta(seconds=3)


def killed(rank: int, device: str) -> None:
    x = torch.ones(8 << 20, device=device)
    dist.all_reduce(x)
    if rank == 1:  # in the middle of one of these
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    while True:
        dist.all_reduce(x)


def killed_async(rank: int, device: str) -> None:
    x = torch.ones(1 << 20, device=device)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x, async_op=True).wait()


def missing(rank: int, device: str) -> None:
    dist.all_reduce(torch.ones(1, device=device))
    dist.barrier()
    if rank == 1:
        time.sleep(8)
    dist.all_reduce(torch.ones(1000, device=device))
    torch.accelerator.synchronize()  # where calls are queued, this is what waits


def other_shape(rank: int, device: str) -> None:
    dist.all_reduce(torch.ones(1000 + rank, device=device))


def other_op(rank: int, device: str) -> None:
    x = torch.ones(1000, device=device)
    dist.broadcast(x, 0) if rank == 1 else dist.all_reduce(x)


def other_type(rank: int, device: str) -> None:
    dist.all_reduce(torch.ones(1000, device=device, dtype=torch.int32 if rank else torch.float32))


def stopped(rank: int, device: str) -> None:
    """Stopped for less than the timeout: everything goes on."""
    if rank == 1 and os.fork() == 0:
        time.sleep(0.3)
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    end = time.monotonic() + 2.5
    x = torch.ones(1 << 16, device=device)
    while True:
        x.fill_(1)
        dist.all_reduce(x)
        assert bool((x == dist.get_world_size()).all())
        over = torch.tensor([float(time.monotonic() > end)], device=device)
        dist.all_reduce(over, dist.ReduceOp.MAX)
        if over.item():
            break
    raise RuntimeError("went on")


def store_dies(rank: int, device: str) -> None:
    """Groups that are connected go on; another one cannot be made, and says so."""
    dist.barrier()
    if rank == 0:
        os.kill(int(os.environ["STORE_PROCESS"]), signal.SIGKILL)
    x = torch.ones(1000, device=device)
    for _ in range(10):
        dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.new_group(timeout=TIMEOUT)


def aborted(rank: int, device: str) -> None:
    x = torch.ones(1000, device=device)
    dist.all_reduce(x)
    if rank == 1:
        dist.group.WORLD._get_backend(torch.device(device)).abort()
    dist.all_reduce(x)


def connecting(rank: int, device: str) -> None:
    """A rank that is in the launch, but never makes the group."""
    if rank == 1:
        time.sleep(6)
        return
    dist.new_group(timeout=TIMEOUT)


def main() -> None:
    what, device = sys.argv[1:3]
    distributed.init_process_group("flagos", timeout=TIMEOUT)
    start = time.monotonic()
    try:
        globals()[what](dist.get_rank(), device)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        print(f"after {time.monotonic() - start:.1f} s")
    sys.stdout.flush()
    os._exit(0)  # not the business of this test: how torch ends after a failure


if __name__ == "__main__":
    main()

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

LONG = datetime.timedelta(seconds=120)
"""Where the test is that an error comes before the timeout, or none at all. A busy machine takes long too."""

SHORT = datetime.timedelta(seconds=3)
"""Where the timeout is what is tested."""


def when_the_others_have_failed() -> None:
    """Waits, without the group, until every other rank has its error, if they live to tell."""
    store = dist.distributed_c10d._get_default_store()
    ranks = [f"failed/{rank}" for rank in range(dist.get_world_size()) if rank != dist.get_rank()]
    store.wait(ranks, 10 * SHORT)


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
    dist.group.WORLD.set_timeout(SHORT)
    if rank == 1:
        when_the_others_have_failed()
    dist.all_reduce(torch.ones(1000, device=device))
    torch.accelerator.synchronize()  # where calls are queued, this is what waits


def other_shape(rank: int, device: str) -> None:
    dist.all_reduce(torch.ones(1000 + rank, device=device))


def other_op(rank: int, device: str) -> None:
    x = torch.ones(1000, device=device)
    dist.broadcast(x, 0) if rank == 1 else dist.all_reduce(x)


def other_root(rank: int, device: str) -> None:
    """Every rank gives what it has: nobody would have to wait."""
    for _ in range(2):  # the first rank is told at its next call
        dist.broadcast(torch.full((1000,), float(rank), device=device), rank)


def other_type(rank: int, device: str) -> None:
    dist.all_reduce(torch.ones(1000, device=device, dtype=torch.int32 if rank else torch.float32))


def stopped(rank: int, device: str) -> None:
    """Stopped for less than the timeout: everything goes on."""
    child = 0
    working, works = os.pipe()
    if rank == 1:
        child = os.fork()
        if child == 0:
            os.read(working, 1)
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(float(os.environ.get("STOPPED_SECONDS", "1")))
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
    x = torch.ones(1 << 16, device=device)
    longest = 0.0
    over = 0.0
    while not over:
        start = time.monotonic()
        x.fill_(1)
        dist.all_reduce(x)
        assert bool((x == dist.get_world_size()).all())
        os.write(works, b"1") if not longest else None
        gone = bool(child) and os.waitpid(child, os.WNOHANG)[0] == child
        flag = torch.tensor([float(gone)], device=device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        over = flag.item()
        longest = max(longest, time.monotonic() - start)
    raise RuntimeError(f"went on, having waited for {longest:.2f} s")


def store_dies(rank: int, device: str) -> None:
    """Groups that are connected go on; another one cannot be made, and says so."""
    dist.barrier()
    if rank == 0:
        os.kill(int(os.environ["STORE_PROCESS"]), signal.SIGKILL)
    x = torch.ones(1000, device=device)
    for _ in range(10):
        dist.all_reduce(x, dist.ReduceOp.SUM)
        assert bool((x == dist.get_world_size()).all())
        x.fill_(1)
    print("the connected group went on")
    dist.new_group(timeout=SHORT)


def aborted(rank: int, device: str) -> None:
    x = torch.ones(1000, device=device)
    dist.all_reduce(x)
    if rank == 1:
        dist.group.WORLD._get_backend(torch.device(device)).abort()
    dist.all_reduce(x)


def connecting(rank: int, device: str) -> None:
    """A rank that is in the launch, but never makes the group."""
    if rank == 1:
        when_the_others_have_failed()
        return
    dist.new_group(timeout=SHORT)


def monitored(rank: int, device: str) -> None:
    """A rank that does not come to a monitored barrier."""
    if rank == 1:
        when_the_others_have_failed()
        return
    backend = dist.group.WORLD._get_backend(torch.device(device))
    backend.monitored_barrier(datetime.timedelta(seconds=1))


def another_user(rank: int, device: str) -> None:
    """A rank that may not open what the others have open."""
    if rank == 1:
        os.setuid(65534)
    dist.new_group(timeout=LONG)


def killed_all(rank: int, device: str) -> None:
    """All ranks are killed, so that none is left to remove the shared memory."""
    dist.all_reduce(torch.ones(1 << 20, device=device))
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    what, device = sys.argv[1:3]
    place = {}
    if "STORE_FILE" in os.environ:
        place = {"init_method": "file://" + os.environ["STORE_FILE"]}
        place |= {name: int(os.environ[name.upper()]) for name in ("rank", "world_size")}
    distributed.init_process_group("flagos", timeout=LONG, **place)
    start = time.monotonic()
    try:
        globals()[what](dist.get_rank(), device)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        print(f"after {time.monotonic() - start:.1f} s")
    sys.stdout.flush()
    if what in ("missing", "connecting", "monitored"):
        dist.distributed_c10d._get_default_store().set(f"failed/{dist.get_rank()}", "")
    os._exit(0)  # this test is not about how torch ends after a failure


if __name__ == "__main__":
    main()

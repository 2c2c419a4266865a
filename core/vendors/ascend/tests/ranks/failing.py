"""One rank fails in one way; the others end with an error that names it. Run once a rank."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from torch_fl import distributed

SHORT = datetime.timedelta(seconds=4)


def killed(rank: int) -> None:
    x = torch.ones(1000, device="flagos")
    dist.all_reduce(x)
    torch.flagos.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x, async_op=True).wait()
    torch.flagos.synchronize()


def missing(rank: int) -> None:
    dist.all_reduce(torch.ones(1, device="flagos"))
    dist.barrier()
    dist.group.WORLD.set_timeout(SHORT)
    if rank == 1:
        time.sleep(8)
        os._exit(4)
    dist.all_reduce(torch.ones(1000, device="flagos"))
    torch.flagos.synchronize()


def other_call(rank: int) -> None:
    x = torch.ones(1000, device="flagos")
    dist.all_reduce(x)
    dist.barrier()
    dist.group.WORLD.set_timeout(SHORT)
    dist.broadcast(x, 0) if rank == 1 else dist.all_reduce(x)
    torch.flagos.synchronize()


def refused(rank: int) -> None:
    """What HCCL does not reduce on this chip: gathered where it is small, else refused; the group goes on."""
    for dtype in (torch.float64, torch.uint8):
        small = torch.tensor([0.1, 0.2, 0.3], device="flagos").to(dtype) + rank
        work = dist.all_reduce(small, async_op=True)
        work.wait()
        print(dtype, small.tolist())
        try:
            dist.all_reduce(torch.ones(1 << 20, dtype=dtype, device="flagos"))
        except NotImplementedError as error:
            print(error)
    print(distributed.state()["device"][0]["gathered"])
    x = torch.ones(3, dtype=torch.float64, device="flagos")
    dist.broadcast(x, 0)
    dist.all_reduce(total := torch.ones(3, device="flagos"))
    assert total.tolist() == [dist.get_world_size()] * 3
    small = torch.ones(3, dtype=torch.uint64, device="flagos")
    try:
        dist.all_reduce(small)
    except NotImplementedError as error:
        print(error)
    dist.destroy_process_group()
    print("gathered", json.dumps(distributed.gathered()), flush=True)


def one_device(_rank: int) -> None:
    """Both ranks on device 0."""
    torch.flagos.set_device(0)
    dist.all_reduce(torch.ones(3, device="flagos"))


def main() -> None:
    what = sys.argv[1]
    distributed.init_process_group("flagos", timeout=datetime.timedelta(seconds=120))
    try:
        globals()[what](dist.get_rank())
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(3)


if __name__ == "__main__":
    main()

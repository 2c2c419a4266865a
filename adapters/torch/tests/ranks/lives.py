"""Makes the default group, uses it and destroys it, again and again: lives.py TIMES. Run once a rank.

Also what a rank must not leave behind, and what a process that it forks must not touch.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


def count_of(what: str) -> int:
    return len(os.listdir(f"/proc/self/{what}"))


def mapped() -> int:
    return Path("/proc/self/maps").read_text().count("flagos-comm")


def use(device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((1000,), float(rank), device=device)
    dist.all_reduce(x, async_op=True).wait()
    assert bool((x == sum(range(size))).all())
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x[:10], (rank + 1) % size),
            dist.P2POp(dist.irecv, x[10:20], (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()


def from_two_threads() -> None:
    """Two threads that use a group each, as a pipeline and its gradients do."""
    groups = [dist.new_group() for _ in range(2)]
    wrong: list[object] = []

    def run(which: int) -> None:
        try:
            for turn in range(200):
                x = torch.full((turn * 5 + 1,), float(which + 1))
                work = dist.all_reduce(x, group=groups[which], async_op=turn % 2 == 0)
                if work is not None:
                    work.wait()
                assert bool((x == (which + 1) * dist.get_world_size()).all()), (which, turn)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def forked_child_leaves_the_group_alone() -> None:
    child = os.fork()
    if child == 0:
        status = 3
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistBackendError as error:
            status = 0 if "belongs to the process that forked this one" in str(error) else 4
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        dist.destroy_process_group()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the child ended with {status}"
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [dist.get_world_size()] * 3, "the parent's group goes on"


def main() -> None:
    times = int(sys.argv[1])
    opened = []
    threads = count_of("task")
    for life in range(times):
        dist.init_process_group("flagos")
        use("flagos" if life % 2 else "cpu")
        if life == 0:
            from_two_threads()
            forked_child_leaves_the_group_alone()
        dist.barrier()
        dist.destroy_process_group()
        opened.append(count_of("fd"))
    # The first lives open libraries and the device, which stay open.
    assert mapped() == 0, f"{mapped()} mappings of shared memory are left"
    assert count_of("fd") <= opened[min(2, times - 1)] + 2, f"descriptors: {opened}"
    deadline = time.monotonic() + 60
    while count_of("task") > threads + 3:  # threads of torch end by themselves, a moment later
        assert time.monotonic() < deadline, f"{count_of('task')} threads are left"
        time.sleep(0.01)
    print(f"{times} lives")


if __name__ == "__main__":
    main()

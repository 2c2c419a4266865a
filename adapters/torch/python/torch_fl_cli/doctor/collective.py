"""A collective between two processes; runs in a process of its own, which forks them."""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import timedelta

from flagos.processes.reports import report

RANKS = 2
PROBLEM = 3
"""The status of a rank that got a wrong sum."""


def rank_process(rank: int, place: str) -> int:
    """Adds up over all ranks: 0 when the sum is right."""
    import torch
    import torch.distributed as dist

    if "flagos" not in dist.Backend.backend_list:
        import torch_fl  # noqa: F401
    store = dist.FileStore(place, RANKS)
    dist.init_process_group(
        "cpu:flagos", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=30)
    )
    x = torch.arange(100_000.0) + rank
    dist.all_reduce(x)
    expected = RANKS * torch.arange(100_000.0) + sum(range(RANKS))
    dist.destroy_process_group()
    return 0 if torch.equal(x, expected) else PROBLEM


def main() -> int:
    """Reports the exit status of each rank, and the engines of collectives."""
    import torch  # noqa: F401  # once, before the ranks are forked

    from flagos import _core

    library = _core.comm_settings()[1]
    engines = [
        {"name": name, "usable": usable, "detail": detail, "lacking": lacking}
        for name, usable, detail, lacking in _core.comm_engines(library or None, _core.vendor())
    ]
    report("engines", engines=engines, gathered_most=_core.comm_gathered_most)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(RANKS):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = rank_process(rank, f"{folder}/store")
                except Exception as error:
                    print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    report("ranks", statuses=statuses)
    return 0 if not any(statuses) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Registers the backend `flagos` with torch.distributed."""

from __future__ import annotations

import atexit
import time
from typing import Any

import torch

BACKEND = "flagos"
DEVICES = ["flagos", "cpu"]
# A call that waits for a rank that is gone is not waited for longer when the interpreter ends.
_REST_LIMIT_S = 2.0


def register() -> None:
    """Register the backend, the default one of the device. Idempotent."""
    import torch.distributed as dist

    from flagos import _core
    from torch_fl import _C

    if not dist.is_available():
        return
    _C.open_comm(_core.comm_capsule())
    # Registers again if torch_fl.waiting has registered the name alone.
    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=DEVICES)
    # torch calls it on every backend that can split, but only torch's own CUDA backends define it.
    backends = torch._C._distributed_c10d.Backend
    if not hasattr(backends, "perform_nocolor_split"):
        setattr(backends, "perform_nocolor_split", _not_in_the_group)  # noqa: B010
    from torch_fl.distributed import by_name

    by_name.install()
    atexit.unregister(let_rest)
    atexit.register(let_rest)


def let_rest() -> None:
    """Give the GIL to the threads of groups until they hold no tensors, two seconds at most.

    A thread that drops the last reference to a tensor of Python takes the GIL. The end of the interpreter unwinds a
    thread that asks for the GIL, through destructors that may not throw, and the process aborts.
    """
    until = time.monotonic() + _REST_LIMIT_S
    while torch.ops.flagos.host_calls_in_flight() and time.monotonic() < until:
        time.sleep(0.001)


def create(options: Any, _backend_options: object = None) -> Any:
    """Make the backend of one group; torch calls this on every rank of it.

    Raises torch.distributed.DistBackendError when not all ranks come within the timeout.
    """
    from torch.distributed import ProcessGroup

    from flagos import _core

    # torch's bindings wrap backends of groups only, so this group carries the backend to Python.
    carrier = ProcessGroup(options.store, options.group_rank, options.group_size)
    engine, library, window, dump_folder = _core.comm_settings()
    torch.ops.flagos.attach_backend(
        carrier.boxed(),
        options.group_id,
        int(options.timeout.total_seconds() * 1000),
        engine,
        library,
        window,
        dump_folder,
        list(options.global_ranks_in_group),
    )
    return carrier._get_backend(torch.device("flagos"))


def _not_in_the_group(_backend: object, _device: object) -> None:
    """Nothing to do: ranks outside of a new group take no part in creating it."""

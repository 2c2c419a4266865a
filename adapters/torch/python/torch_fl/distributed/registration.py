"""Tells torch.distributed of the backend `flagos`."""

from __future__ import annotations

from typing import Any

import torch

BACKEND = "flagos"
DEVICES = ["flagos", "cpu"]


def register() -> None:
    """Register the backend, the default one of the device. Idempotent."""
    import torch.distributed as dist
    from flagos import _core
    from torch_fl import _C

    if not dist.is_available() or BACKEND in dist.Backend.backend_list:
        return
    _C.open_comm(_core.comm_capsule())
    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=DEVICES)


def create(options: Any, _backend_options: object = None) -> Any:
    """Make the backend of one group; torch calls this on every rank of it.

    Raises torch.distributed.DistBackendError when not all ranks come within the timeout.
    """
    from flagos import _core
    from torch.distributed import ProcessGroup

    # torch's bindings wrap the backends of a group: this one only carries it to Python.
    carrier = ProcessGroup(options.store, options.group_rank, options.group_size)
    engine, library, window, dump_folder = _core.comm_settings()
    torch.ops.flagos.attach_backend(
        carrier.boxed(),  # type: ignore[attr-defined]
        options.group_id,
        int(options.timeout.total_seconds() * 1000),
        engine,
        library,
        window,
        dump_folder,
        list(options.global_ranks_in_group),
    )
    return carrier._get_backend(torch.device("flagos"))

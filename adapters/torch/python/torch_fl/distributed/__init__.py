"""torch.distributed on flagos: `init_process_group("auto")`, and what is known of a group.

The backend is called `flagos`. It is the default for the device, so that `init_process_group()` picks
it, and it serves tensors on the CPU too. Everything else is torch's own: DistributedDataParallel,
fully_shard, DTensor, torch.distributed.checkpoint and torchrun are used as they are.
"""

from __future__ import annotations

import json
import os
from typing import Any, TypedDict

import torch
import torch.distributed as dist

from flagos import _core
from torch_fl.distributed import registration

BACKEND = registration.BACKEND


def backend_string(backend: str = "auto") -> str:
    """Returns the `backend` for `torch.distributed.init_process_group`.

    "auto" is "flagos", which serves flagos devices and the CPU, when all ranks are on one host. Over
    several hosts, which the launcher tells by LOCAL_WORLD_SIZE, tensors on the CPU need gloo:
    "cpu:gloo,flagos:flagos". Any other name is returned as it is.
    """
    if backend != "auto":
        return backend
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    return BACKEND if local == world else f"cpu:gloo,flagos:{BACKEND}"


def init_process_group(backend: str = "auto", **arguments: Any) -> None:
    """`torch.distributed.init_process_group` with `backend` chosen as `backend_string` says.

    Under a launcher that sets LOCAL_RANK, the device of that number becomes the current one, if there
    are as many.
    """
    local_rank = os.environ.get("LOCAL_RANK")
    count = torch.flagos.device_count()  # type: ignore[attr-defined]
    if local_rank is not None and int(local_rank) < count:
        torch.flagos.set_device(int(local_rank))  # type: ignore[attr-defined]
    dist.init_process_group(backend_string(backend), **arguments)


def state(group: dist.ProcessGroup | None = None, device: str = "flagos") -> dict[str, Any]:
    """The state of a group as this rank sees it: its last calls, and the progress of the other ranks.

    `device` ("flagos" or "cpu") picks the backend where a group has several. Raises ValueError when
    that backend is not flagos.
    """
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise ValueError("there is no process group: call init_process_group first")
    text = torch.ops.flagos.process_group_state(group.boxed(), device == "cpu")
    known: dict[str, Any] = json.loads(text)
    return known


class Gathered(TypedDict):
    """A reduction that a library of collectives lacks, for which this process gathered the data of all ranks."""

    library: str
    op: str
    dtype: str
    calls: int
    bytes: int  # of all ranks together


def gathered() -> list[Gathered]:
    """The reductions that libraries lacked in this process, of all groups, also of those that are gone."""
    return [
        {"library": library, "op": op, "dtype": dtype, "calls": calls, "bytes": size}
        for library, op, dtype, calls, size in _core.comm_gathered()
    ]


__all__ = ["BACKEND", "Gathered", "backend_string", "gathered", "init_process_group", "state"]

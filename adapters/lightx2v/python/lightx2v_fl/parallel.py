"""Joins the ranks of a parallel run into the process group of LightX2V's device."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def join(device: str) -> None:
    """Choose this rank's device by LOCAL_RANK and initialise torch.distributed over it.

    Does nothing if torch.distributed is initialised already. Raises RuntimeError, with a remedy, if the
    program was not started by torchrun or if there are fewer devices than ranks.
    """
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    rank = _local_rank()
    if device != "cpu":
        _choose_device(torch.get_device_module(device), device, rank)
    if device == "flagos":
        _distributed().init_process_group()
        return
    # What torch, or the package that brings the device to torch, registered for it.
    backend = dist.Backend.default_device_backend_map.get(device)
    if backend is None:
        raise RuntimeError(
            f"no process group is known for {device!r}: run with FLAGOS_LIGHTX2V_DEVICE=flagos"
        )
    options = None
    if backend == "nccl":  # as LightX2V itself
        options = dist.ProcessGroupNCCL.Options()
        options.is_high_priority_stream = True
    dist.init_process_group(backend=backend, pg_options=options)


def _local_rank() -> int:
    try:
        return int(os.environ["LOCAL_RANK"])
    except KeyError:
        raise RuntimeError(
            "the configuration has `parallel`, but LOCAL_RANK is not set: start the program with "
            "torchrun --nproc_per_node=<ranks> -m lightx2v.infer ..., or take `parallel` out"
        ) from None
    except ValueError as error:
        raise RuntimeError(f"LOCAL_RANK is no number: {error}") from None


def _choose_device(module: object, device: str, rank: int) -> None:
    count = module.device_count()  # type: ignore[attr-defined]
    if rank >= count:
        more = "; FLAGOS_HOST_DEVICES shows more host devices" if device == "flagos" else ""
        raise RuntimeError(
            f"rank {rank} of this machine needs a device of its own, but there are {count}: start at "
            f"most {count} ranks here{more}"
        )
    module.set_device(rank)  # type: ignore[attr-defined]


def _distributed() -> ModuleType:
    """The torch adapter's module for process groups. Raises RuntimeError if torch_fl lacks it."""
    if find_spec("torch_fl.distributed") is None:
        raise RuntimeError(
            "this torch_fl has no torch_fl.distributed, the process group for flagos tensors: install "
            "the torch-fl of the same version as lightx2v-fl, or run on the CPU or the chip's own device "
            "(FLAGOS_LIGHTX2V_DEVICE)"
        )
    return import_module("torch_fl.distributed")

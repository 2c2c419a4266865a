"""Calls of Python implementations, recorded and repeated without Python.

The first call with a signature (shapes, strides, types, alignments, numbers) runs as ever; the next ones
are recorded, and when two recordings are the same, later calls repeat them from C++ and Rust: memory is
made, kernels are launched, results are wrapped. `statistics` tells what is repeated and what is not, with
the reason. `FLAGOS_REPLAY=0` turns it off.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import torch

from torch_fl import _vendor, python_kernels
from torch_fl.python_kernels import capture


@dataclass(frozen=True)
class Recordings:
    """The recordings of one operator in numbers.

    replayed: signatures that are repeated. undecided: not recorded twice yet. refused: signatures
    that are not repeated, with `reasons`. replays: calls that were repeated.
    """

    replayed: int
    undecided: int
    refused: int
    replays: int
    reasons: tuple[str, ...]


def enabled() -> bool:
    """Whether calls are recorded in this process: they are under CUDA, with CPython 3.12 or newer."""
    _verify_from_the_start()
    wanted = os.environ.get("FLAGOS_REPLAY", "1").lower() not in ("0", "false", "off", "no")
    return wanted and capture.SUPPORTED and _vendor.on_cuda()


@cache
def _verify_from_the_start() -> None:
    every = os.environ.get("FLAGOS_VERIFY_REPLAYS")
    if every:
        verify(int(every))


def statistics() -> dict[str, Recordings]:
    """Every operator that a Python implementation of the native kind serves now."""
    found = {}
    for op in python_kernels.served_natively():
        replayed, undecided, refused, replays, reasons = torch.ops.flagos.recordings(op)
        found[op] = Recordings(replayed, undecided, refused, replays, tuple(sorted(set(reasons))))
    return found


def forget() -> None:
    """Drop all recordings, after a change that they depend on and that cannot be noticed."""
    torch.ops.flagos.forget_recordings()


def verify(every: int) -> None:
    """Compare one replay in `every` with a call of the implementation, bit for bit; 0: none.

    A difference raises RuntimeError. `FLAGOS_VERIFY_REPLAYS` sets it from the start.
    """
    torch.ops.flagos.verify_replays(every)


def refuse(op: str) -> None:
    """Serve `op` (such as `aten::mm`) without recordings from now on."""
    python_kernels.refuse_recordings(op)

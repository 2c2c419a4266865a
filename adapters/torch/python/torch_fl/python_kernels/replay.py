"""Calls of Python implementations, recorded and repeated without Python.

The first call with a signature (shapes, strides, types, alignments, numbers) runs as usual and the next calls
are recorded. After two equal recordings, C++ and Rust repeat later calls: they allocate memory, launch
kernels and wrap results. `statistics` lists repeated and refused signatures, with reasons.
`FLAGOS_REPLAY=0` turns replay off.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_fl.python_kernels import implementations
from torch_fl.python_kernels.recording import enabled, verify

__all__ = ["Recordings", "enabled", "forget", "refuse", "statistics", "verify"]


@dataclass(frozen=True)
class Recordings:
    """The recordings of one operator in numbers.

    replayed: signatures that are repeated. undecided: not recorded twice yet. refused: signatures
    that are not repeated, with `reasons`. replays: calls that were repeated. packed: signatures that are repeated
    from a kernel pack, and packed_replays: calls that were, both counted among the others. Where only what was
    measured to be faster serves (`FLAGOS_FLAGGEMS=auto`), slower and rare are the calls left to the native kernel:
    for their class, and because their signature had not come often or is not replayed.
    """

    replayed: int
    undecided: int
    refused: int
    replays: int
    reasons: tuple[str, ...]
    packed: int = 0
    packed_replays: int = 0
    slower: int = 0
    rare: int = 0


def statistics() -> dict[str, Recordings]:
    """The recordings of every operator that an implementation for native tensors serves now."""
    found = {}
    for op in implementations.served_natively():
        replayed, undecided, refused, replays, reasons, *packed = torch.ops.flagos.recordings(op)
        explanations = tuple(sorted(set(reasons)))
        left = torch.ops.flagos.left_to_native(op)
        found[op] = Recordings(replayed, undecided, refused, replays, explanations, *packed, *left)
    return found


def forget() -> None:
    """Drop all recordings, after a change that they depend on and that flagos cannot notice."""
    torch.ops.flagos.forget_recordings()


def refuse(op: str) -> None:
    """Serve `op` (such as `aten::mm`) without recordings from now on."""
    implementations.refuse_recordings(op)

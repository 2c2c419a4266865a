"""How much of the communication of a step runs beside its computation, from the profiler's events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.autograd import DeviceType

Span = tuple[float, float]


def spans(events: Iterable[Any]) -> tuple[list[Span], list[Span]]:
    """When kernels of NCCL ran, and when other kernels did, in microseconds.

    Events are torch's `FunctionEvent`s. Those of a device carry the type PrivateUse1 instead of CUDA as soon as
    a plugin has given that type a name. Copies, and ranges that a program marked, are no kernels.
    """
    communication, computation = [], []
    for event in events:
        name = event.name.lower()
        if event.device_type == DeviceType.CPU or getattr(event, "is_user_annotation", False):
            continue
        if name.startswith(("memcpy", "memset", "nccl:")):
            continue
        kernels = communication if "nccl" in name else computation
        kernels.append((event.time_range.start, event.time_range.end))
    return communication, computation


def union(given: Iterable[Span]) -> list[Span]:
    """The same times without overlaps, in order."""
    merged: list[Span] = []
    for start, end in sorted(given):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def share_beside(communication: Iterable[Span], computation: Iterable[Span]) -> float:
    """The part of the time of communication in which something is computed too, 0 to 1.

    Raises ValueError where there is no communication, or no computation: then nothing was measured.
    """
    theirs, ours = union(communication), union(computation)
    total = sum(end - start for start, end in theirs)
    if total <= 0 or not ours:
        raise ValueError(f"the profile has {len(theirs)} spans of NCCL and {len(ours)} of others")
    both = sum(
        max(0.0, min(end, last) - max(start, first))
        for start, end in theirs
        for first, last in ours
    )
    return both / total

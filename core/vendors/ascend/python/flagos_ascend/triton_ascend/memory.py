"""Memory that a launch needs beside its arguments. The launchers' C++ calls these functions (`source`).

A result is released when the kernel is queued, long before it has run.
"""

from __future__ import annotations

import torch

from flagos_ascend.triton_ascend.device import TYPE, interface

_apart: dict[int, list[torch.Stream]] = {}


def workspace(nbytes: int) -> torch.Tensor:
    """Memory that a kernel on the current stream writes before it reads it.

    Released memory is used again in the order of the stream, so by kernels that run later. Raises
    torch.OutOfMemoryError.
    """
    return _bytes(nbytes)


def locks(nbytes: int) -> torch.Tensor:
    """Memory for a kernel's locks, whose first values the launcher copies at once, in no stream's order.

    So no kernel that is still queued may use it. It belongs to a stream on which nothing is queued, and the allocator
    hands it out again when the current stream has passed the launch. Raises torch.OutOfMemoryError.
    """
    flagos = interface()
    current = flagos.current_stream()
    apart = _stream_apart(current)
    with flagos.stream(apart):
        memory = _bytes(nbytes)
    if torch.are_deterministic_algorithms_enabled():
        apart.synchronize()  # torch fills new memory then
    memory.record_stream(current)
    return memory


def _bytes(nbytes: int) -> torch.Tensor:
    # Of a grid without programs 0 bytes are asked for, and no memory has no address.
    return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=TYPE)


def _stream_apart(current: torch.Stream) -> torch.Stream:
    """A stream of the same device that is another one than `current`.

    The core hands out its streams in turn, so that a program may have one of these too. Of two one is another.
    """
    flagos = interface()
    index = current.device_index
    known = _apart.get(index)
    if known is None:
        known = _apart[index] = [flagos.Stream(device=f"{TYPE}:{index}") for _ in range(2)]
    return known[0] if known[0].stream_id != current.stream_id else known[1]

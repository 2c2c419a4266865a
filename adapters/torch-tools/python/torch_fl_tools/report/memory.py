"""The allocator's memory over time, in few points however long the program runs."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl_tools.report.process_file import DeviceMemory

MOST = 1000


def is_used() -> bool:
    """Whether the program has used a device."""
    # Not an import, because the main thread may be in the middle of this package's.
    flagos = getattr(torch, "flagos", None)
    return flagos is not None and bool(flagos.is_initialized())


class Samples:
    """Points `(seconds, allocated, reserved)` of one device; sizes in bytes.

    Of a stretch of samples the one with the most allocated memory is kept, so that peaks stay.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._stretch = 1
        self._pending: list[tuple[float, int, int]] = []
        self.points: list[tuple[float, int, int]] = []

    def add(self, seconds: float, allocated: int, reserved: int) -> None:
        """One more sample."""
        self._pending.append((seconds, allocated, reserved))
        if len(self._pending) < self._stretch:
            return
        self.points.append(_highest(self._pending))
        self._pending.clear()
        if len(self.points) >= self._most:
            pairs = [self.points[at : at + 2] for at in range(0, len(self.points), 2)]
            self.points = [_highest(pair) for pair in pairs]
            self._stretch *= 2


def _highest(points: list[tuple[float, int, int]]) -> tuple[float, int, int]:
    return max(points, key=lambda point: point[1])


class Devices:
    """The memory of every device that the program uses."""

    def __init__(self) -> None:
        self._samples: dict[int, Samples] = {}

    def sample(self, seconds: float) -> None:
        """Ask the allocator, if the program has used a device."""
        if not is_used():
            return
        flagos: Any = getattr(torch, "flagos")  # noqa: B009
        for index in range(flagos.device_count()):
            stats = flagos.memory_stats(index)
            reserved = stats.get("reserved_bytes.all.current", 0)
            if not reserved and index not in self._samples:
                continue
            allocated = stats.get("allocated_bytes.all.current", 0)
            self._samples.setdefault(index, Samples()).add(seconds, allocated, reserved)

    def devices(self) -> list[DeviceMemory]:
        """For each device: its name, memory, the allocator's own peaks, and the points."""
        flagos: Any = getattr(torch, "flagos", None)
        found: list[DeviceMemory] = []
        for index, samples in sorted(self._samples.items()):
            properties = flagos.get_device_properties(index)
            found.append(
                {
                    "index": index,
                    "name": properties.name,
                    "total": properties.total_memory,
                    "peak_allocated": flagos.max_memory_allocated(index),
                    "peak_reserved": flagos.max_memory_reserved(index),
                    "points": samples.points,
                }
            )
        return found

"""The time of a call on the host and on the device.

On the device: what passes between two events around calls in a row, queued behind a kernel that waits, so that the
device never waits for the host. On the host: what queueing these calls takes. Where the device has no such kernel, both
are the time until the device has finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from torch_fl.native import native

_CALLS = 10
_AHEAD = 4_000_000  # cycles that the device waits, about 2 ms: longer than queueing the calls


def once(run: Callable[[], object]) -> tuple[float, float]:
    """The microseconds of a call on the device and on the host."""
    if native().device_type != "cuda":
        torch.accelerator.synchronize()
        began = time.perf_counter()
        for _ in range(_CALLS):
            run()
        torch.accelerator.synchronize()
        spent = 1e6 * (time.perf_counter() - began) / _CALLS
        return spent, spent
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(_AHEAD)
    begin.record()
    began = time.perf_counter()
    for _ in range(_CALLS):
        run()
    host = time.perf_counter() - began
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / _CALLS, 1e6 * host / _CALLS

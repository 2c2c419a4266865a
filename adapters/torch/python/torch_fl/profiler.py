"""Time on the device in torch.profiler's tables.

torch 2.11 lists PrivateUse1 among the activities its tracing library collects, whether or not a
tracer for the device was given to that library. The host vendor has none: its kernels are ordinary
functions on the host. Without the activity torch falls back to timing every operator with a pair of
the device's events, which is just what is wanted.
"""

from __future__ import annotations

import torch.autograd.profiler as autograd_profiler
from torch._C._profiler import ProfilerActivity

_collected_by_torch = autograd_profiler._supported_activities


def _collected() -> set[ProfilerActivity]:
    return set(_collected_by_torch()) - {ProfilerActivity.PrivateUse1}


def install() -> None:
    """Have torch time the device's operators with events. Idempotent."""
    autograd_profiler._supported_activities = _collected

"""Time on the device in torch.profiler's tables and traces.

torch lists PrivateUse1 among the activities its tracing library collects, whether or not a tracer for the
device was given to that library, and since 2.12 expects one of every device.

- Where a device type of torch's own serves flagos, the device's kernels, copies and fills are of that type, so
  asking for one activity is asking for the other: the tracing library's own tracer collects them.
- No other device has a tracer. Every operator is timed with a pair of the device's events then, which torch 2.11
  falls back to without the activity, and later ones on request.

torch waits for the device before it ends a profile. Where that fails, the profile ends all the same, and then the error
is raised.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.profiler as autograd_profiler
from torch._C._profiler import ProfilerActivity, ProfilerState

from torch_fl.flagos import is_initialized
from torch_fl.native import native

_collected_by_torch = autograd_profiler._supported_activities
_prepared_by_torch = autograd_profiler.profile.__init__
_ended_by_torch = autograd_profiler.profile.__exit__


def _collected() -> set[ProfilerActivity]:
    return set(_collected_by_torch()) - {ProfilerActivity.PrivateUse1}


def _prepare(self: autograd_profiler.profile, *args: Any, **kwargs: Any) -> None:
    _prepared_by_torch(self, *args, **kwargs)
    if self.enabled and ProfilerActivity.PrivateUse1 in self.kineto_activities:
        self.kineto_activities.remove(ProfilerActivity.PrivateUse1)
        self.kineto_activities.add(native().profiler_activity)


def _prepare_events(self: autograd_profiler.profile, *args: Any, **kwargs: Any) -> None:
    _prepared_by_torch(self, *args, **kwargs)
    if self.enabled and self.profiler_kind.name == "KINETO_PRIVATEUSE1":
        if not self.use_cpu:
            raise AssertionError(
                "operators are timed on flagos while the CPU is profiled: add ProfilerActivity.CPU"
            )
        self.profiler_kind = ProfilerState.KINETO_PRIVATEUSE1_FALLBACK


def _end(self: autograd_profiler.profile, *exception: Any) -> Any:
    if not is_initialized() and self.use_device == "flagos":
        return _end_without_device(self, *exception)
    try:
        return _ended_by_torch(self, *exception)
    except Exception:
        if (
            torch.autograd._profiler_enabled()
        ):  # its hooks would outlive the profile that they write to
            self.use_device = None
            _ended_by_torch(self, *exception)
        raise


def _end_without_device(self: autograd_profiler.profile, *exception: Any) -> Any:
    """Ends the profile of a program that used the CPU alone: torch would wait for the device, and so open it."""
    device, self.use_device = self.use_device, None
    try:
        return _ended_by_torch(self, *exception)
    finally:
        self.use_device = device


def install() -> None:
    """Make torch collect the activities of the native device, and end every profile. Idempotent."""
    setattr(autograd_profiler.profile, "__exit__", _end)  # noqa: B010
    if native().profiler_activity is not None:
        setattr(autograd_profiler.profile, "__init__", _prepare)  # noqa: B010
    else:
        autograd_profiler._supported_activities = _collected
        setattr(autograd_profiler.profile, "__init__", _prepare_events)  # noqa: B010

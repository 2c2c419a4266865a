"""Time of kernels on the device by operator, from one stretch of torch.profiler at the program's beginning.

One stretch, not several: torch cannot end a range in a second profile that began in a first.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.autograd.profiler as autograd_profiler
from torch._C._autograd import DeviceType
from torch._C._profiler import ProfilerActivity, _ExperimentalConfig

from torch_fl.native import native
from torch_fl_tools.report.process_file import DeviceCalls

_AGAIN_SECONDS = 0.5
_PendingCall = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class DeviceTime:
    """Collects from its making on, for `seconds`, or until the program makes a profile of its own.

    Only calls of the thread that makes it, and of its backward passes, are seen.
    """

    def __init__(self, seconds: float) -> None:
        self.why_not: str | None = None
        self.seconds: float | None = None
        self.operators: dict[str, DeviceCalls] = {}
        self._profile: Any = None
        self._ended = False
        if native().profiler_activity is None:
            self.why_not = (
                f"torch.profiler has no timeline of devices of the vendor {native().vendor!r}"
            )
            return
        if not seconds > 0:
            self.why_not = "--device-seconds is 0"
            return
        if threading.current_thread() is not threading.main_thread():
            self.why_not = "the device was first asked for by another thread than the main thread"
            return
        self._give_way()
        self._profile = autograd_profiler.profile(
            use_cpu=True,
            use_kineto=True,
            use_device=native().device_type,
            experimental_config=_ExperimentalConfig(  # type: ignore[call-arg]
                capture_overload_names=True
            ),
        )
        self._profile.kineto_activities = {ProfilerActivity.CPU, native().profiler_activity}
        self._began = time.monotonic()
        try:
            self._profile.__enter__()
        except Exception as error:  # the program shall run as it does without a report
            self.why_not = f"torch.profiler does not start: {type(error).__name__}: {error}"
            self._profile = None
            return
        # The thread that began a profile has to end it. It does so between two lines of Python.
        self._call = _PendingCall(self._from_the_interpreter)
        self._ask_in(seconds)

    def _ask_in(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._ask)
        self._timer.daemon = True
        self._timer.start()

    def _ask(self) -> None:
        ctypes.pythonapi.Py_AddPendingCall(self._call, None)

    def _from_the_interpreter(self, _: Any) -> int:
        module: Any = torch.get_device_module(native().device_type)
        if module.is_current_stream_capturing():  # a profile waits for the device at its end
            self._ask_in(_AGAIN_SECONDS)
        else:
            self.end()
        return 0

    def end(self) -> None:
        """Collect no more. Idempotent; on the thread that began."""
        if self._profile is None or self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self._profile.__exit__(None, None, None)
        self.seconds = time.monotonic() - self._began
        self.operators = by_operator(self._profile.kineto_results.events())
        self._profile = None

    def _give_way(self) -> None:
        enter = autograd_profiler.profile._prepare_trace

        def prepare(profile: autograd_profiler.profile) -> None:
            if profile is not self._profile:
                self.end()
            enter(profile)

        setattr(autograd_profiler.profile, "_prepare_trace", prepare)  # noqa: B010


def by_operator(events: Iterable[Any]) -> dict[str, DeviceCalls]:
    """Counts, in kineto's events, the calls of each operator and the nanoseconds of the kernels that they launched."""
    operators: dict[int, str] = {}
    kernels: list[tuple[int, int]] = []
    found: dict[str, DeviceCalls] = {}
    for event in events:
        if event.device_type() == DeviceType.CPU:
            if event.name().startswith("aten::") and event.linked_correlation_id() == 0:
                overload = event.overload_name()
                name = f"{event.name()}.{overload}" if overload else event.name()
                operators[event.correlation_id()] = name
                found.setdefault(name, {"calls": 0, "ns": 0})["calls"] += 1
        elif event.linked_correlation_id() > 0:
            kernels.append((event.linked_correlation_id(), event.duration_ns()))
    for operator, nanoseconds in kernels:
        if operator in operators:
            found[operators[operator]]["ns"] += nanoseconds
    return {name: numbers for name, numbers in found.items() if numbers["ns"]}

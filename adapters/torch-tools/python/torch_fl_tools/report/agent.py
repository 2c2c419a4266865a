"""The part of `flagos report` within a process of the program: it keeps a file of what the process did.

The file is `PID.json` in the folder that `FLAGOS_REPORT` names. It is there from the beginning, and written again soon
after the device's first use, then less often, every two seconds at last, and at the end, so that a process that is
killed leaves what there was. A thread does this and samples the memory, for at most a hundredth of the time. A forked
child has no part in it.
"""

from __future__ import annotations

import atexit
import json
import os
import statistics
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import flagos
from flagos import _core, plan_listeners, whole_file
from torch_fl import distributed, python_kernels
from torch_fl.aten import routing
from torch_fl.flaggems import tables
from torch_fl.native import native
from torch_fl_tools.report import DEVICE_SECONDS, VARIABLE, counting, device_time, memory
from torch_fl_tools.report.process_file import Operator, ProcessFile, Speed

_SAMPLE_SECONDS = 0.1
_WRITE_SECONDS = 2.0
_SHARE = 100  # a thread of the agent sleeps this many times as long as it worked
_LONGEST_ERROR = 500


def start() -> None:
    """Begin to observe. The device's kernels are registered, and nothing was called yet.

    Raises ValueError if the variable names no folder of `flagos report`.
    """
    folder = Path(os.environ[VARIABLE])
    try:
        device_seconds = float((folder / DEVICE_SECONDS).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{VARIABLE}={folder} names no folder of `flagos report` ({type(error).__name__}: {error}), which alone "
            "sets this variable: unset it"
        ) from error
    agent = _Agent(folder, device_seconds)
    plan_listeners.join(agent)
    with suppress(flagos.ConfigError):  # which the program meets at its first call, or never
        agent.published()
    atexit.register(agent.ended)


class _Agent:
    """A listener of the plan (`flagos.plan_listeners`)."""

    def __init__(self, folder: Path, device_seconds: float) -> None:
        self._path = folder / f"{os.getpid()}.json"
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._served = counting.Served()
        self._memory = memory.Devices()
        self._problems: list[str] = []
        self._over = threading.Event()
        self._ended = False
        self._began = self._written = self._unused = time.monotonic()
        self._started = time.time()
        self._try(lambda: self._put(self._start()))
        torch.ops.flagos.time_operators()
        self._device_time = device_time.DeviceTime(device_seconds)
        self._begin()
        # A fork shall find no thread of the agent in the middle of its work.
        os.register_at_fork(before=self._pause, after_in_parent=self._begin)

    def _begin(self) -> None:
        if self._ended or os.getpid() != self._pid:
            return
        self._over.clear()
        self._thread = threading.Thread(target=self._observe, name="flagos report", daemon=True)
        self._thread.start()

    def _pause(self) -> None:
        if os.getpid() == self._pid:
            self._over.set()
            self._thread.join()

    def require(self, op: str) -> None:
        """Every operator may have implementations."""

    def registered(self, implementation: plan_listeners.Implementation) -> None:
        """The plan is looked at once it is published."""

    def unregistered(self, op: str, impl_id: str) -> None:
        """The plan is looked at once it is published."""

    def published(self) -> None:
        """Attributes the calls so far to the earlier plan."""
        if os.getpid() == self._pid:
            with self._lock:
                self._served.plan(routing.counters(), python_kernels.calls(), _core.plan_lock())

    def ended(self) -> None:
        """The process ends by itself."""
        if os.getpid() != self._pid:
            return
        self._ended = True
        self._pause()
        self._try(self._device_time.end)
        self._try(self._sample)
        self._try(lambda: self._write(ended=True))
        for problem in self._problems:
            print(f"flagos report: {problem}", file=sys.stderr)

    def _observe(self) -> None:
        while not self._over.is_set():
            begun = time.monotonic()
            self._try(self._sample)
            now = time.monotonic()
            if self._is_due(now):
                self._try(lambda: self._write(ended=False))
                self._written = now
            took = time.monotonic() - begun
            self._over.wait(max(_SAMPLE_SECONDS, _SHARE * took))

    def _is_due(self, now: float) -> bool:
        """Whether it is time to write: as soon as the device is used, then whenever that is twice as long ago."""
        if not memory.is_used():
            self._unused = now
            return False
        return now - self._written >= min(_WRITE_SECONDS, (now - self._unused) / 2)

    def _try(self, work: Any) -> None:
        """The program goes on whatever happens here; the report tells it."""
        try:
            work()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if problem not in self._problems:
                self._problems.append(problem)

    def _sample(self) -> None:
        self._memory.sample(time.monotonic() - self._began)

    def _write(self, ended: bool) -> None:
        self._put(self._contents(ended))

    def _put(self, contents: ProcessFile) -> None:
        whole_file.write(self._path, json.dumps(contents))

    def _start(self) -> ProcessFile:
        """The file of a process that has called no operator yet."""
        return {
            "operators": {},
            "lock": "",
            "ended": False,
            "pid": self._pid,
            "argv": getattr(sys, "argv", []),
            "rank": os.environ.get("RANK"),
            "started": self._started,
        }

    def _contents(self, ended: bool) -> ProcessFile:
        with self._lock:
            self._served.count(routing.counters(), python_kernels.calls())
            operators: dict[str, Operator] = {
                op: {
                    "served": calls["served"],
                    "instead": calls["instead"],
                    "fallbacks": calls["fallbacks"],
                }
                for op, calls in self._served.operators().items()
            }
        names, numbers = torch.ops.flagos.operator_times()
        for index, name in enumerate(names):
            calls, total, own = numbers[3 * index : 3 * index + 3]
            entry = operators.setdefault(name, {"served": {}, "instead": 0, "fallbacks": 0})
            entry["host"] = {"calls": calls, "total_ns": total, "own_ns": own}
        for name, kernels in self._device_time.operators.items():
            if name in operators:
                operators[name]["device"] = kernels
        _explain(operators)
        _add_graphs(operators)
        return {
            **self._start(),
            "ended": ended,
            "vendor": native().vendor,
            "torch": torch.__version__,
            "flagos": flagos.__version__,
            "seconds": time.monotonic() - self._began,
            "error": _error(),
            "operators": operators,
            "gathered": distributed.gathered(),
            "device_time": {
                "why_not": self._device_time.why_not,
                "seconds": self._device_time.seconds,
            },
            "memory": self._memory.devices(),
            "speed": _speed(),
            "graphs": dict(torch.ops.flagos.graphs_counts()),
            "queued": torch.ops.flagos.queue_counts()[0],
            "lock": _core.plan_lock(),
            "problems": self._problems,
        }


def _explain(operators: dict[str, Operator]) -> None:
    """Add what the plan says of each operator, and why calls fell back."""
    reasons = python_kernels.declined()
    for fallback in _core.fallbacks():
        if fallback["op"] in operators:
            operators[fallback["op"]]["first_reason"] = fallback["reason"]
    for op, entry in operators.items():
        entry["reasons"] = reasons.get(op, {})
        if entry["served"] or entry["instead"] or entry["fallbacks"]:
            plan = _core.explain(op)
            entry["decided_by"] = plan["decided_by"]
            entry["alternatives"] = [
                {
                    "impl_id": one["impl_id"],
                    "kind": one["kind"],
                    "chosen": one["chosen"],
                    "reason": one["reason"],
                }
                for one in plan["candidates"]
            ]


def _add_graphs(operators: dict[str, Operator]) -> None:
    """Add how many calls automatic graphs followed, and why others ran natively."""
    for name, calls in torch.ops.flagos.graphs_followed_calls().items():
        if name in operators:
            operators[name]["followed"] = calls
    for name, reasons in torch.ops.flagos.graphs_native_calls().items():
        if name in operators:
            operators[name]["native"] = dict(reasons)


def _speed() -> Speed:
    """The medians of the ratios that `flagos tune` measured on this chip, of all classes of calls."""
    ratios = {}
    for name, speeds in tables.speed().items():
        times = [one for known in speeds.values() for one in known["calls"].values()]
        ratios[name] = {
            "host": statistics.median(ours / native for ours, native in (t["host"] for t in times)),
            "device": statistics.median(
                ours / native for ours, native in (t["device"] for t in times)
            ),
        }
    return {"chip": tables.chip(), "ratios": ratios}


def _error() -> str | None:
    """The exception that ends the program."""
    value = getattr(sys, "last_value", None)
    if value is None:
        return None
    return f"{type(value).__name__}: {value}"[:_LONGEST_ERROR]

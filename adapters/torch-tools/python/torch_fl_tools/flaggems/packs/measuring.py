"""The times of packed calls and of the native kernels, on the host and on the device, for `FLAGOS_FLAGGEMS=auto`.

Both sides take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_fl import python_kernels
from torch_fl.flaggems import implementations, pack_file, tables
from torch_fl.native import native
from torch_fl.python_kernels import attachment
from torch_fl_tools.flaggems import timing
from torch_fl_tools.flaggems.packs.making import Made
from torch_fl_tools.flaggems.recorded.inputs import Inputs
from torch_fl_tools.flaggems.recorded.zones import Zones
from torch_fl_tools.records.facts import Call

_ROUNDS = 5


@dataclass(frozen=True)
class Times:
    """Medians of one call in microseconds: FlagGems' from the pack, and the native kernel's."""

    device: float
    host: float
    native_device: float
    native_host: float

    @property
    def faster(self) -> bool:
        """No slower on the device and on the host, and faster on one of them."""
        return tables.is_faster(
            {
                "host": [self.host, self.native_host],
                "device": [self.device, self.native_device],
            }
        )


Measured = dict[str, dict[tuple[int, ...], Times]]
"""By overload and signature."""


def measure(pack: pack_file.Pack, made: Made, say: Callable[[str], None]) -> Measured:
    """The times of every call of a pack, which C++ has, on this machine's device."""
    found: Measured = {}
    for number, (overload, calls) in enumerate(sorted(made.of_call.items()), 1):
        say(f"[{number}/{len(made.of_call)}] measuring {overload}: {len(calls) // 2} calls")
        first, count = pack.header["operators"][overload]["rows"]
        times = found[overload] = {}
        measured: dict[str, Times | None] = {}
        for call, signature in calls:
            name = str(call)
            if name not in measured:
                try:
                    measured[name] = _times(call, (first, count, 0))
                except RuntimeError as error:
                    if native().lost(error):
                        raise
                    say(f"  {name} is not measured: {error}".splitlines()[0])
                    measured[name] = None
            if (of_call := measured[name]) is not None:
                times[signature] = of_call
    return found


def _times(call: Call, rows: tuple[int, int, int]) -> Times:
    device = torch.device("flagos")
    args, kwargs = Inputs(call, device).make(Zones(device, 0, around=0))
    op = python_kernels.require_operator(call.op)

    def run() -> None:
        op(*args, **kwargs)

    sides: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    with torch.no_grad():
        for turn in range(_ROUNDS + 1):
            for packed in (True, False) if turn % 2 else (False, True):
                if packed:
                    _attach(call.op, rows)
                try:
                    for _ in range(2):
                        run()
                    spent = timing.once(run)
                finally:
                    if packed:
                        attachment.detach(call.op)
                if turn:
                    sides[packed].append(spent)
    (device_time, host), (native_device, native_host) = (
        [statistics.median(part) for part in zip(*sides[packed], strict=True)]
        for packed in (True, False)
    )
    return Times(device_time, host, native_device, native_host)


def _attach(op: str, rows: tuple[int, int, int]) -> None:
    """Have the pack serve its calls of `op`; a call that is not among them is an error."""

    def kernel(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{op} is called as no call of the pack")

    packed = python_kernels.Packed(rows, outside=True)
    attachment.attach_kernel(op, kernel, implementations.BACKEND, on_native=True, packed=packed)


def with_times(contents: pack_file.Contents, measured: Measured) -> pack_file.Contents:
    """The same pack, whose calls say whether they are faster than the native kernel's."""
    calls = {
        overload: [
            replace(call, faster=call.signature in times and times[call.signature].faster)
            for call in some
        ]
        for overload, some in contents.calls.items()
        for times in [measured.get(overload, {})]
    }
    operators = contents.about["operators"]
    for overload, times in measured.items():
        every = list(times.values())
        operators[overload]["microseconds"] = [
            [round(value, 2) for value in (t.device, t.native_device, t.host, t.native_host)]
            for t in dict.fromkeys(every)
        ]
    return pack_file.Contents({**contents.about, "operators": operators}, contents.kernels, calls)

"""The fastest configuration of a call's tuned kernels, of those that are right."""

from __future__ import annotations

from typing import Any

import torch

from flagos import UnsupportedError
from torch_fl.flaggems import implementations, table_file
from torch_fl.flaggems.configurations import Named
from torch_fl.native import native
from torch_fl_tools.flaggems.checker import Checker
from torch_fl_tools.flaggems.recorded.inputs import Inputs
from torch_fl_tools.flaggems.recorded.tuning import Unfit, choosing
from torch_fl_tools.flaggems.recorded.zones import Zones
from torch_fl_tools.records.facts import Call

_CALLS = 5
_AHEAD = (
    60_000_000  # cycles that the device waits, about 30 ms: longer than Python takes for the calls
)
_GAIN = 0.97  # another configuration has to be faster than the verified one by more than noise


def fastest(call: Call, most: int, checker: Checker, known: Named) -> int:
    """The number of the configuration to take, of the first `most`; 0, which was verified, where no other is faster.

    Each is measured on the device. Another process judges the fastest, and the next one if it is not right. Where
    `known` names the configurations of the call's kernels, none is measured, and 0 means these.
    """
    times = _times(call, most, known)
    candidates = sorted(
        (
            number
            for number in times
            if number and times[number] < _GAIN * times.get(0, float("inf"))
        ),
        key=lambda number: times[number],
    )
    for number in candidates:
        if checker.judge(call, number)[0] == table_file.STRICT:
            return number
    return 0


def _times(call: Call, most: int, known: Named) -> dict[int, float]:
    """The milliseconds of each configuration that the chip takes; none where there is no choice, or it is known."""
    device = torch.device(native().device_type or "flagos")
    args, kwargs = Inputs(call, device).make(Zones(device, 0, around=0))
    function = implementations.function(call.overload)
    times: dict[int, float] = {}
    number, several = 0, most
    while number < several:
        try:
            with choosing(number) as choice, torch.no_grad():
                function(*args, **kwargs)
                several = min(several, choice.configurations)
                if all(
                    k in known.get(kernel, ()) for kernel, of in choice.chosen.items() for k in of
                ):
                    return {}
                if several > 1:
                    times[number] = _once(lambda: function(*args, **kwargs))
        except Unfit:
            pass
        except UnsupportedError:
            return {}
        number += 1
    return times


def _once(run: Any) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(_AHEAD)
    begin.record()
    for _ in range(_CALLS):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / _CALLS

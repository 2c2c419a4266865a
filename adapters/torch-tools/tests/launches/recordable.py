"""Tells which of FlagGems' overloads can be recorded, on a machine without a device, and why others cannot.

    python -m adapters.torch-tools.tests.launches.recordable [--ops PATTERN] [--json FILE]

Each is called with the arguments that a sample of torch's operator database calls it with, under the
recorder and over the simulated driver: kernels are compiled and their launches noted, but nothing is
computed. A kernel that depends on values is therefore only seen where it asks for them.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import torch_fl.launcher as launcher
from adapters.torch.tests.launcher import simulated
from torch_fl.flaggems import envelope, implementations, package
from torch_fl.python_kernels import capture
from torch_fl_tools.flaggems import cases, samples

_SECONDS = 40  # for one overload


class _Arguments(TorchDispatchMode):
    """Keeps the arguments of the first call of each overload."""

    def __init__(self, found: dict[str, Any], wanted: set[str]) -> None:
        super().__init__()
        self.found, self.wanted = found, wanted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name: str = func._schema.name.removeprefix("aten::")
        name += f".{func._schema.overload_name}" if func._schema.overload_name else ""
        if name in self.wanted and name not in self.found:
            tensors = samples.tensors((args, kwargs))
            if all(t.numel() for t in tensors):
                copied = pytree.tree_map_only(torch.Tensor, _copy, (args, kwargs or {}))
                self.found[name] = copied
        return func(*args, **(kwargs or {}))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def arguments(wanted: set[str]) -> dict[str, Any]:
    """For each overload that a sample in float32 or int64 calls, the arguments of the call."""
    found: dict[str, Any] = {}
    where, lost = cases.calling(wanted, 2)
    assert not lost, lost
    for name, places in where.items():
        for entry, form in places:
            if name in found:
                break
            op = cases.database()[entry]
            dtype = next(d for d in envelope.TYPES if d in op.dtypes)
            call, grad = cases.Group(entry, form, dtype).call, form == "gradient"
            try:
                for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 4):
                    with _Arguments(found, wanted):
                        call(sample)
            except Exception:  # a sample this form does not take
                continue
    return found


def recorded(overload: str, args: Any, kwargs: Any) -> str:
    """Why a call cannot be repeated; empty when it can."""
    function = package.function(overload)
    inputs = samples.tensors((args, kwargs))
    function(*args, **kwargs)  # compiles
    found = []
    for _ in range(2):
        words = capture.record(function, inputs, args, kwargs)[1]
        if isinstance(words, capture.Refusal):
            return str(words)
        found.append(words)
    return "" if found[0] == found[1] else "it launches something else each time"


def _late(*_: object) -> None:
    raise TimeoutError(f"it took more than {_SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = {
        name
        for name in implementations.registered()
        if implementations._never_routed(name) is None and fnmatchcase(name, options.ops)
    }
    made = arguments(names)
    results: dict[str, str] = {}
    signal.signal(signal.SIGALRM, _late)
    stream = SimpleNamespace(cuda_stream=0)
    with ExitStack() as stack:
        stack.enter_context(simulated.flaggems())
        stack.enter_context(simulated.any_memory())
        # The device is the machine, and its stream the simulated driver's.
        stack.enter_context(mock.patch.object(capture, "_HOST", "nowhere"))
        stack.enter_context(mock.patch.object(torch.cuda, "current_stream", return_value=stream))
        from triton.runtime.autotuner import Autotuner

        stack.enter_context(mock.patch.object(Autotuner, "_bench", return_value=[1.0] * 3))
        package._load()
        launcher.install()
        for index, name in enumerate(sorted(names)):
            if name not in made:
                results[name] = "no sample calls it"
                continue
            signal.alarm(_SECONDS)
            try:
                results[name] = recorded(name, *made[name])
            except Exception as error:
                results[name] = (
                    f"raised {type(error).__name__}: {' '.join(str(error).split())[:120]}"
                )
            finally:
                signal.alarm(0)
            print(f"[{index + 1}/{len(names)}] {name}: {results[name] or 'recorded'}", flush=True)
    counts = Counter(results.values())
    print(f"{counts.pop('', 0)} of {len(results)} are recorded; the others:")
    for reason, count in counts.most_common():
        print(f"{count:4} {reason}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())

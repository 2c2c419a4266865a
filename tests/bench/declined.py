"""The cost of a call that a FlagGems kernel declines by its conditions: `python -m tests.bench.declined`.

    python -m tests.bench.declined [--rounds N] [--iterations N] [--json]

On the host vendor, `exp` and `add` of 8×8 tensors that are not contiguous: on the native kernel alone; routed to an
implementation that takes contiguous tensors only, held against that without Python; and the same decided by the
implementation, in Python. Turn and turn about in one process. Prints ratios; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch

import flagos
from adapters.torch.tests import conditions_oracle
from flagos import UnsupportedError
from tests.bench import machine
from tests.bench.timing import Measured, lines, measure, nanoseconds_per_call
from torch_fl import python_kernels
from torch_fl.flaggems import envelope

_ONLY = frozenset(["contiguous"])
_HERE, _IN_PYTHON, _NATIVE = "declined before Python", "declined in Python", "native"


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a call outside the conditions must not come here")


def _deciding(overload: str) -> Callable[..., Any]:
    def declines(*args: Any, **kwargs: Any) -> Any:
        holding = conditions_oracle.holding(overload, args, kwargs)
        broken = ", ".join(envelope.ordered(_ONLY - holding))
        raise UnsupportedError(f"it was verified within conditions, and not: {broken}")

    return declines


def sides(
    overload: str, call: Callable[[], Any], iterations: int
) -> dict[str, Callable[[], float]]:
    """Nanoseconds of a call by each way; the operator stays registered."""
    op = f"aten::{overload}"
    for impl_id, fn in (("bench.here", _never), ("bench.python", _deciding(overload))):
        flagos.register(op, fn, impl_id=impl_id, native=True, on_request="it declines every call")
    python_kernels.limit(op, "bench.here", _ONLY)

    def by(selector: str) -> Callable[[], float]:
        def measured() -> float:
            with flagos.route({op: selector}):
                return nanoseconds_per_call(call, iterations)

        return measured

    return {
        _NATIVE: by("vendor"),
        _HERE: by("impl:bench.here"),
        _IN_PYTHON: by("impl:bench.python"),
    }


def main() -> None:
    """Prints a line for each operator and way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    x = torch.linspace(-1, 1, 64).reshape(8, 8).to("flagos").t()
    found: dict[str, Measured] = {}
    with torch.no_grad():
        for overload, call in (("exp", x.exp), ("add.Tensor", lambda: x + x)):
            ways = sides(overload, call, options.iterations)
            found[overload] = measure(ways, options.rounds)
    if options.json:
        print(json.dumps({name: one.to_json() for name, one in found.items()}))
        return
    versions = ", ".join(f"{n} {v}" for n, v in machine.versions("torch", "flagos").items())
    print(f"{machine.processor()}, {machine.cores()} cores, {versions}; ns a call")
    print(*lines(found, "ns", "operator", digits=0), sep="\n")


if __name__ == "__main__":
    main()

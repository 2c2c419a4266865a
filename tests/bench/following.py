"""What a call costs its thread where automatic graphs follow it: `python -m tests.bench.following`.

    FLAGOS_VENDOR=host python -m tests.bench.following [--rounds N] [--iterations N] [--json]

`add` and `mul` of 8×8 float32 in turns, each call between two looks at the clock. A call that is followed launches
nothing, except for the last one of a chunk: so the median is what following costs, and the mean counts the launches,
which repeat the calls one by one where the host computes. Beside them an operator that does nothing, by a boxed kernel,
which is the dispatcher's share. Prints nanoseconds per call, less the clock's own; asserts nothing.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from flagos import _core
from tests.bench import cpp_loop, machine
from tests.bench.overhead import table
from tests.bench.timing import Measured, command


def from_python(iterations: int) -> list[int]:
    """Nanoseconds of each of the later calls."""
    x, y = torch.ones(8, 8, device="flagos"), torch.ones(8, 8, device="flagos")
    clock, add, mul = time.perf_counter_ns, torch.add, torch.mul
    spent = []
    for i in range(iterations):
        start = clock()
        (mul if i % 2 else add)(x, y)
        spent.append(clock() - start)
    return spent[iterations // 2 :]


def python_clock(iterations: int) -> float:
    """Nanoseconds that two looks at Python's clock are apart."""
    clock = time.perf_counter_ns
    return statistics.median(-clock() + clock() for _ in range(iterations))


def sides(iterations: int) -> dict[str, Callable[[], float]]:
    """Every side, in nanoseconds per call. Raises SystemExit without a compiler."""
    torch.ones(1, device="flagos")
    library = cpp_loop.compiled("following.cc")
    if library is None:
        sys.exit("no C++ compiler was found: install g++ or name one by CXX")
    bench = cpp_loop.function(library, "bench_following", ctypes.c_char_p, ctypes.c_int)

    def from_cpp(what: str, graphs: bool = False, mean: bool = False) -> float:
        with torch.flagos.graphs.auto(graphs):
            return bench(what.encode(), mean, iterations) - bench(b"clock", mean, iterations)

    def python(graphs: bool) -> float:
        with torch.flagos.graphs.auto(graphs):
            return statistics.median(from_python(iterations)) - python_clock(iterations)

    return {
        "an operator that does nothing": partial(from_cpp, "nothing"),
        "from C++, off": partial(from_cpp, "calls"),
        "from C++, followed": partial(from_cpp, "calls", graphs=True),
        "from C++, with launches": partial(from_cpp, "calls", graphs=True, mean=True),
        "from Python, off": partial(python, False),
        "from Python, followed": partial(python, True),
    }


def report(measured: Measured, iterations: int) -> str:
    """The sides as a table."""
    spreads = measured.spreads()
    nothing = spreads[measured.reference].median
    head = (
        f"{machine.setting('flagos', 'torch')} Vendor {_core.vendor()}; {iterations} calls a round; least / median / "
        "greatest of the rounds."
    )
    rows = [
        (
            side,
            spread.in_order(),
            f"{spread.median - nothing:.0f}",
        )
        for side, spread in spreads.items()
    ]
    return "\n".join([head, "", *table(rows, ("call", "ns", "over nothing, ns"))])


if __name__ == "__main__":
    command(__doc__, sides, report, iterations=20_000)

"""``flagos bench``."""

from __future__ import annotations

import sys

from flagos.cli.output import CommandError
from flagos.processes import foreground

DETAILS = """
benchmarks:
  comm    latency and bus bandwidth of collectives beside gloo, or beside torch's own for the device

examples:
  $ flagos bench comm
  $ flagos bench comm --ranks 4 --sizes 1K,1M --collectives all_reduce --json
  $ flagos bench comm --help
"""

#: Benchmarks by name, each with the module that runs it in a process of its own.
BENCHMARKS = {"comm": "torch_fl.distributed.bench"}


def run(arguments: list[str]) -> int:
    """Runs a benchmark with its own options."""
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print("usage: flagos bench <benchmark> [options]\n" + DETAILS.rstrip())
        return 0
    if name not in BENCHMARKS:
        raise CommandError(
            f"there is no benchmark {name!r}", f"there is {', '.join(sorted(BENCHMARKS))}"
        )
    return foreground.run([sys.executable, "-m", BENCHMARKS[name], *arguments[1:]])

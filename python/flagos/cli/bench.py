"""``flagos bench``."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from flagos.cli.output import CommandError, Commands

DETAILS = """
benchmarks:
  comm    latency and bus bandwidth of collectives beside gloo, or beside ProcessGroupNCCL

examples:
  $ flagos bench comm
  $ flagos bench comm --ranks 4 --sizes 1K,1M --collectives all_reduce --json
  $ flagos bench comm --help
"""

#: Benchmarks by name, each with the module that runs it in a process of its own.
BENCHMARKS = {"comm": "torch_fl.distributed.bench"}


def add_to(commands: Commands) -> None:
    """Adds the command to the help; :func:`run` is called before anything is parsed."""
    summary = "measure collectives: flagos bench comm"
    commands.add_parser("bench", help=summary, add_help=False)


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
    if find_spec("torch_fl") is None:
        raise CommandError("torch_fl is not installed", "pip install 'flagos[torch]'")
    return subprocess.run([sys.executable, "-m", BENCHMARKS[name], *arguments[1:]]).returncode

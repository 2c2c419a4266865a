"""A worker process: runs the programs that it is sent, one JSON line each, and answers with one.

Before every step it writes it to the journal, so that the parent knows what a process that died was doing.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib
import json
import os
import resource
import signal
import sys
import warnings
from typing import Any, TextIO

import torch

from flagos.processes.ending import Ending

from .control import CONTROLS, GRAPH_FAULTS
from .generate import KINDS, TURN_KINDS, generator, replay
from .program import TRIED, Step
from .twins import run, run_in_turns

_PROGRAMS = 400  # of one process
_ADDRESSES = 10 << 30  # bytes; a larger request fails instead of taking long
_RENEW = 77  # how a process ends that has run them
# Modules that steps import, imported before the process forks.
_SLOW = ("torch._dynamo", "torch.distributed.fsdp", "torch.nested", "torch.func", "numpy")


def answer(request: dict[str, Any], journal: TextIO) -> dict[str, Any]:
    """Runs a program: that of a seed, or these steps, on these devices."""
    journal.seek(0)
    journal.truncate()

    def note(step: Step) -> None:
        journal.write(json.dumps(step.to_json()) + "\n")
        journal.flush()

    turns = request.get("turns", 0)
    perturb = request.get("perturb", False)
    devices = tuple(request["devices"])
    if "seed" in request:
        kinds = TURN_KINDS if turns else KINDS
        next_step = generator(request["seed"], lambda text: note(Step(TRIED, text)), kinds)
    else:
        next_step = replay([Step(**step) for step in request["steps"]])
    before = _followed()
    if turns:
        steps = run(next_step, ("cpu",), note=note).steps
        fault = GRAPH_FAULTS.get(request.get("control") or "", 0)
        pair = (devices[0], devices[-1])  # of the CPU alone, that one twice
        outcome = run_in_turns(steps, turns, pair, fault=fault, perturb=perturb)
    else:
        control = CONTROLS.get(request.get("control") or "")
        outcome = run(next_step, devices, control=control, note=note, perturb=perturb)
    gc.collect()
    return {
        "followed": _followed() - before,
        "steps": [step.to_json() for step in outcome.steps],
        "raised": outcome.raised,
        "differences": [difference.to_json() for difference in outcome.differences],
    }


def _followed() -> int:
    """The calls that automatic graphs have followed in this process."""
    return torch.flagos.graphs.counts()["followed"] if hasattr(torch, "flagos") else 0


def serve(results: TextIO, journal: TextIO, limit: int) -> None:
    """Answers requests until there is no other; a program that takes too long ends the process."""
    for served, line in enumerate(sys.stdin):
        signal.alarm(limit)
        text = json.dumps(answer(json.loads(line), journal))
        signal.alarm(0)
        results.write(text + "\n")
        results.flush()
        if served == _PROGRAMS:
            os._exit(_RENEW)


def main() -> None:
    """Forks the process that serves, and again when it died: torch is imported once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, required=True, help="descriptor of the result pipe")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--plugin", default="")
    parser.add_argument("--limit", type=int, default=30, help="seconds that a program may take")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    for module in filter(None, (options.plugin, *_SLOW)):
        importlib.import_module(module)
    with os.fdopen(options.results, "w") as results, open(options.journal, "w") as journal:
        results.write('"ready"\n')
        results.flush()
        while (child := os.fork()) != 0:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status == 0:
                return
            if status != _RENEW:
                how = (
                    "took too long" if status == -signal.SIGALRM else f"ended with {Ending(status)}"
                )
                results.write(json.dumps({"died": how}) + "\n")
                results.flush()
        faulthandler.enable()
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        serve(results, journal, options.limit)
        os._exit(0)


if __name__ == "__main__":
    main()

"""A worker process: runs the programs that it is sent, one JSON line each, and answers with one.

Before every step it writes it to the journal, so that the parent knows what a process that died was doing.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import sys
import warnings
from typing import Any

import torch

from .control import CONTROLS
from .generate import generator, replay
from .program import Step
from .twins import run


def answer(request: dict[str, Any], journal: Any) -> dict[str, Any]:
    """Runs a program: that of a seed, or these steps, on these devices."""
    if "seed" in request:
        next_step = generator(request["seed"])
    else:
        next_step = replay([Step(**step) for step in request["steps"]])
    journal.seek(0)
    journal.truncate()

    def note(step: Step) -> None:
        journal.write(json.dumps(step.to_json()) + "\n")
        journal.flush()

    outcome = run(
        next_step,
        tuple(request["devices"]),
        alter=CONTROLS.get(request.get("control") or ""),
        note=note,
        perturb=request.get("perturb", False),
    )
    gc.collect()
    return {
        "steps": [step.to_json() for step in outcome.steps],
        "raised": outcome.raised,
        "differences": [difference.to_json() for difference in outcome.differences],
    }


def main() -> None:
    """Works until there is no other request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, required=True, help="descriptor of the result pipe")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--plugin", default="")
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    if options.plugin:
        __import__(options.plugin)
    journal = open(options.journal, "w")  # noqa: SIM115 - lives as long as the process
    with os.fdopen(options.results, "w", buffering=1) as results:
        results.write('"ready"\n')
        for line in sys.stdin:
            results.write(json.dumps(answer(json.loads(line), journal)) + "\n")


if __name__ == "__main__":
    main()

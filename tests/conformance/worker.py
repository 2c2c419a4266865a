"""A worker process: checks cases it is sent, and leaves a trace of what it is doing.

The parent writes one case as a line of JSON to standard input and reads one line of results from a
pipe, whose first line says that it is ready. Before every call the worker notes variant and sample
in the progress file, so that the parent can name the culprit of a crash or of a hang.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import resource
import sys
import time
import warnings
from itertools import islice
from typing import Any

import torch

from . import reference
from .databases import Case, calls_of, preload, variants_of
from .expectations import Expectations, path_for
from .twin_run import TwinRun, seed_everything

_SAMPLE_SEED = 0
_FAILURES_KEPT = 3
PROGRESS_BYTES = 512
READY = '"ready"'


class Progress:
    """The note about the call in progress, readable after this process is gone."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT)

    def note(self, text: str) -> None:
        os.pwrite(self._file, text.encode()[:PROGRESS_BYTES].ljust(PROGRESS_BYTES), 0)


def check_case(
    case: Case,
    twins: TwinRun,
    expectations: Expectations,
    *,
    sample_limit: int = 0,
    only: tuple[str, ...] = (),
    note: Any = lambda text: None,
) -> dict[str, Any]:
    """Checks one case and returns its results as JSON-able data."""
    started = time.perf_counter()
    variants: dict[str, Any] = {}
    failures: list[dict[str, Any]] = []
    for variant in variants_of(case):
        if only and variant not in only:
            continue
        note(f"{variant}: generating samples")
        tolerance = expectations.tolerance(case, variant)
        counts: dict[str, Any] = {
            "samples": 0,
            "failed": 0,
            "reference_raised": 0,
            "ungenerated": 0,
            "nondeterministic": 0,
        }
        variants[variant] = counts
        seed_everything(_SAMPLE_SEED)
        try:
            generator = calls_of(case, variant)
            calls = list(islice(generator, sample_limit) if sample_limit else generator)
        except Exception as error:  # a generator that fails says nothing about the device
            _require_device(twins)
            counts["ungenerated"] += 1
            counts["why"] = f"{type(error).__name__}: {error}"[:200]
            continue
        for index, (description, call) in enumerate(calls):
            note(f"{variant} sample {index}: {description}")
            verdict = twins.check(call, tolerance)
            counts["samples"] += 1
            counts["reference_raised"] += verdict.reference_error is not None
            counts["nondeterministic"] += verdict.nondeterministic
            if verdict.mismatches or verdict.reference_error is not None:
                _require_device(twins)
            if not verdict.mismatches:
                continue
            counts["failed"] += 1
            if counts["failed"] <= _FAILURES_KEPT:
                failures.append(
                    {
                        "variant": variant,
                        "sample": index,
                        "inputs": description,
                        "mismatches": [
                            {"kind": mismatch.kind, "message": mismatch.message}
                            for mismatch in verdict.mismatches[:6]
                        ],
                    }
                )
    return {
        **case.to_json(),
        "seconds": round(time.perf_counter() - started, 3),
        "variants": variants,
        "failures": failures,
    }


def _require_device(twins: TwinRun) -> None:
    """Raises when a device was lost, which ends the process: nothing after it would be compared."""
    for device in {twins.reference, twins.device}:
        torch.ones(1, device=device).sum().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--plugin", default="")
    parser.add_argument("--sample-limit", type=int, default=0)
    parser.add_argument("--variants", default="")
    parser.add_argument("--close", action="store_true")
    parser.add_argument("--results", type=int, required=True, help="descriptor of the result pipe")
    parser.add_argument("--progress", required=True)
    options = parser.parse_args()

    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    if options.plugin:
        importlib.import_module(options.plugin)
    reference.use(options.reference)
    twins = TwinRun(options.device, options.reference, close=options.close)
    expectations = Expectations.load(path_for(options.reference))
    progress = Progress(options.progress)
    preload()
    only = tuple(filter(None, options.variants.split(",")))
    with os.fdopen(options.results, "w", buffering=1) as results:
        results.write(READY + "\n")
        for line in sys.stdin:
            result = check_case(
                Case(**json.loads(line)),
                twins,
                expectations,
                sample_limit=options.sample_limit,
                only=only,
                note=progress.note,
            )
            result["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            results.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

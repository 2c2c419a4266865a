"""The task of a worker process: to check the cases it is given, and to say which call it begins.

Before every call it tells variant and sample, so that the parent can name the culprit of a crash or of a hang.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import resource
import sys
import time
import warnings
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import torch

from flagos.processes.pool import Report

from . import reference
from .databases import Case, calls_of, preload, variants_of
from .expectations import Expectations, paths_for
from .twin_run import TwinRun, seed_everything

_SAMPLE_SEED = 0
_FAILURES_KEPT = 3
_RECYCLE_BYTES = 6 << 30


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
    before = _counters()
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
        "counters": _since(before, _counters()),
    }


def _counters() -> dict[str, dict[str, int]]:
    """The calls of operators on the device, and how many fell back; none without the adapter."""
    adapter = sys.modules.get("torch_fl")
    return adapter.counters() if adapter is not None else {}


def _since(
    before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]
) -> dict[str, list[int]]:
    """`[calls, fallbacks]` of the operators that were called in between."""
    found = {}
    for op, counts in after.items():
        earlier = before.get(op, {"calls": 0, "fallbacks": 0})
        change = [counts[kind] - earlier[kind] for kind in ("calls", "fallbacks")]
        if any(change):
            found[op] = change
    return found


def _require_device(twins: TwinRun) -> None:
    """Raises when a device was lost, which ends the process: nothing after it would be compared."""
    for device in {twins.reference, twins.device}:
        torch.ones(1, device=device).sum().item()


@dataclass(frozen=True)
class Checks:
    """The task of a worker: a case, by its name as JSON. Sent to the process, which is prepared by the first."""

    device: str
    reference: str
    plugin: str = ""
    sample_limit: int = 0
    variants: tuple[str, ...] = ()
    close: bool = False
    expected: tuple[str, ...] = ()

    def __call__(self, name: str, report: Report) -> dict[str, Any]:
        """The results of one case."""
        twins, expectations = _prepared(self)
        return check_case(
            Case(**json.loads(name)),
            twins,
            expectations,
            sample_limit=self.sample_limit,
            only=self.variants,
            note=lambda text: report(text, None),
        )


@cache
def _prepared(checks: Checks) -> tuple[TwinRun, Expectations]:
    """Imports and reads everything that takes seconds, so that no case is charged for it."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    if checks.plugin:
        importlib.import_module(checks.plugin)
    reference.use(checks.reference)
    twins = TwinRun(checks.device, checks.reference, close=checks.close)
    expectations = Expectations.load(*paths_for(checks.reference, checks.expected))
    preload()
    return twins, expectations


def has_memory_left() -> bool:
    """Whether this process, which caches more with every case, may check another."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 <= _RECYCLE_BYTES

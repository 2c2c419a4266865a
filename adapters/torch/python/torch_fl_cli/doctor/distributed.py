"""Checks of collectives: an all-reduce between two processes, and the engines for devices."""

from __future__ import annotations

from collections.abc import Iterator

from flagos.doctor.check import Check, fail, ok
from flagos.processes.reports import run_module
from torch_fl_cli.doctor.collective import PROBLEM


def collectives(timeout: float) -> Iterator[Check]:
    """An all-reduce between two processes, and the engines with what serves them."""
    outcome = run_module("torch_fl_cli.doctor.collective", timeout=timeout)
    ranks = outcome.report("ranks")
    if ranks is None or any(ranks["statuses"]):
        wrong = ranks is not None and PROBLEM in ranks["statuses"]
        detail = "the sum over two processes is wrong" if wrong else str(outcome.failure)
        yield fail(
            "collective",
            detail,
            "run `python -m torch_fl_cli.doctor.collective` to see the error of each rank",
        )
    else:
        yield ok("collective", "two processes computed a sum over shared memory")
    engines = outcome.report("engines")
    for engine in engines["engines"] if engines is not None else ():
        # A missing library is no problem here: a program that asks for its engine gets an error.
        missing = "" if engine["usable"] else "not available: "
        yield ok(f"engine {engine['name']}", missing + engine["detail"], usable=engine["usable"])

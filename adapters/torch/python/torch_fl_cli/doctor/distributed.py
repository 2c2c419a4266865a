"""Checks of collectives: an all-reduce between two processes, and the engines for devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
    if engines is None:
        return
    for engine in engines["engines"]:
        # A missing library is no problem here: a program that asks for its engine gets an error.
        missing = "" if engine["usable"] else "not available: "
        yield ok(f"engine {engine['name']}", missing + engine["detail"], usable=engine["usable"])
        if engine["lacking"]:
            yield _reductions(engine, engines["gathered_most"])


def _reductions(engine: Mapping[str, Any], most: int) -> Check:
    """The reductions that the library of an engine lacks, and what becomes of them."""
    gathered, refused = (
        [one[:3] for one in engine["lacking"] if one[3] is whether] for whether in (True, False)
    )
    parts = []
    if gathered:
        parts.append(
            f"Gathered up to {most / (1 << 20):g} MiB of all ranks, and refused beyond: {_told(gathered)}."
        )
    if refused:
        parts.append(f"Always refused: {_told(refused)}.")
    return ok(
        f"reductions {engine['name']}",
        f"{engine['detail']} lacks reductions. {' '.join(parts)}",
        gathered={dtype: ops for dtype, ops, _ in gathered},
        refused={dtype: ops for dtype, ops, _ in refused},
    )


def _told(lacking: Iterable[tuple[str, list[str], bool]]) -> str:
    """The reductions in words; types that lack the same stand together."""
    types: dict[str, list[str]] = {}
    for dtype, ops, has_none in lacking:
        types.setdefault("all" if has_none else ", ".join(ops), []).append(dtype)
    return "; ".join(f"{ops} of {', '.join(dtypes)}" for ops, dtypes in types.items())

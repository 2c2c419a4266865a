"""Ranks as processes over the simulated libraries of MetaX, whose torch is NVIDIA's."""

from __future__ import annotations

from pathlib import Path

from core.vendors.metax.simulated.run import environment
from tests.ranks import Ended, run

VISIBLE = "MACA_VISIBLE_DEVICES"


def launch(
    folder: Path,
    tmp_path: Path,
    program: Path,
    *arguments: str,
    ranks: int = 2,
    timeout: float = 150,
    **variables: str,
) -> Ended:
    """Run a program once a rank. With MACA_VISIBLE_DEVICES="own" each sees its own device alone, as number 0."""
    report = tmp_path / "report"
    shared = {"SIMULATED_METAX_REPORT": str(report), "SIMULATED_METAX_DEVICES": str(ranks)}

    def own(rank: int) -> dict[str, str]:
        return {VISIBLE: str(rank)} if variables.get(VISIBLE) == "own" else {}

    return run(
        program,
        *arguments,
        folder=tmp_path,
        environment=environment(folder, **shared, **variables),
        report=report,
        own=own,
        ranks=ranks,
        timeout=timeout,
    )

"""Tests of collectives over the simulated libhccl.so that take too long for CI: `make test-comm`.

The name of this file keeps it out of `make test-whole`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.vendors.ascend.tests.launch import SHARED_RANKS, launch
from core.vendors.ascend.tests.test_collectives import folder  # noqa: F401  a fixture


@pytest.mark.parametrize("engine", ["hccl", "flagcx"])
def test_every_collective_of_four_ranks_does_what_gloo_does(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    engine: str,
) -> None:
    variables = {"ASCEND_RT_VISIBLE_DEVICES": "own", "FLAGOS_COMM_ENGINE": engine}
    program = SHARED_RANKS / "collectives.py"
    launch(
        folder, tmp_path, program, "flagos", "30007", "hccl", ranks=4, timeout=900, **variables
    ).well()


@pytest.mark.parametrize("ranks", [2, 4])
def test_training_is_that_of_one_process(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    ranks: int,
) -> None:
    """DDP in five ways, tensor parallelism, FSDP2 with offloading; a checkpoint is read by the ranks that wrote it."""
    for part in ("all", "load"):
        program = SHARED_RANKS / "training.py"
        launch(
            folder,
            tmp_path,
            program,
            "flagos",
            part,
            str(tmp_path / "kept"),
            ranks=ranks,
            timeout=900,
        ).well()

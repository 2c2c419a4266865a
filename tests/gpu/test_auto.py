"""`FLAGOS_FLAGGEMS=auto` on a GPU: what is measured to be faster is served and replayed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flag_gems")

_PROGRAM = """
import torch, flagos
from torch_fl import replay
x, y = torch.randn(32, 32, device="flagos"), torch.randn(2048, 2048, device="flagos")
for _ in range(60):
    x.exp(), y.exp(), x.sin()
known = replay.statistics().get("aten::exp", replay.Recordings(0, 0, 0, 0, ()))
fallbacks = flagos.counters()["aten::exp"]["fallbacks"]
print(known.replays, known.slower, known.rare, fallbacks, "aten::sin" in replay.statistics())
print(flagos.explain("aten::exp"))
"""


@pytest.mark.parametrize("faster", [True, False])
def test_only_classes_that_were_measured_to_be_faster_are_served(
    tmp_path: Path, faster: bool
) -> None:
    import torch

    from torch_fl import python_kernels
    from torch_fl.flaggems import table_file, tables

    number, words = python_kernels.call_class(
        "aten::exp", (torch.empty(32, 32, device="meta"),), {}
    )
    ours = 5.0 if faster else 20.0
    times = {"host": [ours, 10.0], "device": [2.0, 2.0]}
    speeds = {words: {"number": f"{number & (2**64 - 1):x}", "calls": {"small": times}}}
    verdict = {"verdict": "STRICT", "cases": 1, "first": None}
    for kind, entry in (("speed", speeds), ("verdicts", verdict)):
        path = tmp_path / "flagos" / tables.path_for(kind, None, True).name  # type: ignore[union-attr]
        table_file.write(path, tables.table({"exp": entry}))
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "FLAGOS_FLAGGEMS": "auto"}
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    replays, slower, rare, fallbacks, sin = ran.stdout.splitlines()[0].split()
    assert (fallbacks, sin) == ("0", "False")
    if faster:
        assert int(replays) >= 20 and (int(slower), int(rare)) == (60, 32)
        assert "measured to be faster (Float small)" in ran.stdout
    else:
        assert (int(replays), int(slower), int(rare)) == (0, 0, 0)
        assert "faster than the native kernel in none of 1 classes" in ran.stdout

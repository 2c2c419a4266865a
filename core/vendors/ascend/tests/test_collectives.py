"""torch.distributed over the simulated libhccl.so and libflagcx.so: two ranks with a simulated device each."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.vendors.ascend.tests.launch import RANKS, SHARED_RANKS, environment, launch
from tests.ranks import ROOT

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

# What FSDP2 makes of gradients in bfloat16 that are reduced in float32: it writes into a result of another type.
FALLS_BACK = {"aten::cat.out"}

# What `failing.py refused` has gathered on each rank: three elements of two ranks, once for each type.
GATHERED = [
    {"library": "libhccl.so", "op": "sum", "dtype": dtype, "calls": 1, "bytes": size}
    for dtype, size in (("float64", 48), ("uint8", 6))
]


@pytest.fixture(scope="session")
def folder() -> Path:
    """The simulated libraries."""
    from core.vendors.ascend.simulated import build

    return build.build()


@pytest.mark.slow
def test_every_collective_does_what_gloo_does(folder: Path, tmp_path: Path) -> None:
    """By the engine that the vendor names, and by FlagCX. Each rank sees one device."""
    for variables in ({}, {"FLAGOS_COMM_ENGINE": "flagcx"}):
        own = {"ASCEND_RT_VISIBLE_DEVICES": "own", **variables}
        program = SHARED_RANKS / "collectives.py"
        for output in (
            launch(folder, tmp_path, program, "flagos", "20011", "hccl", **own).well().outputs
        ):
            checked = re.search(r"checked (\d+)", output)
            assert checked is not None and int(checked.group(1)) > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "queue"), [("hccl", "off"), ("hccl", "auto"), ("flagcx", "off")]
)
def test_training_is_that_of_the_cpu(folder: Path, tmp_path: Path, engine: str, queue: str) -> None:
    """DDP, FSDP2 in mixed precision; nothing of a group is left. Only what is known falls back to the CPU."""
    late = {
        "SIMULATED_ASCEND_DELAY_US": "100",
        "FLAGOS_COMM_ENGINE": engine,
        "FLAGOS_QUEUE": queue,
    }
    for output in launch(folder, tmp_path, RANKS / "trained.py", **late).well().outputs:
        fallbacks = re.search(r"^fallbacks (.*)$", output, re.MULTILINE)
        assert fallbacks is not None and json.loads(fallbacks.group(1)).keys() <= FALLS_BACK


@pytest.mark.slow
@pytest.mark.parametrize("queue", ["off", "auto"])
def test_gradients_are_exact_when_everything_is_late(
    folder: Path, tmp_path: Path, queue: str
) -> None:
    late = {
        "SIMULATED_ASCEND_DELAY_US": "1000",
        "FLAGOS_COMM_ENGINE": "flagcx",
        "FLAGOS_QUEUE": queue,
    }
    launch(folder, tmp_path, SHARED_RANKS / "gradients.py", "ascend", **late).well()


@pytest.mark.slow
def test_a_rank_that_was_killed_is_named(folder: Path, tmp_path: Path) -> None:
    ended = launch(folder, tmp_path, RANKS / "failing.py", "killed", timeout=60)
    assert ended.statuses == [-6, -9] and ended.misuses == []
    assert re.search(r"the process of rank 1 \(process \d+\) has ended", ended.outputs[0])


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named(folder: Path, tmp_path: Path) -> None:
    ended = launch(folder, tmp_path, RANKS / "failing.py", "missing", timeout=60)
    assert ended.statuses == [-6, 4] and ended.misuses == []
    told = r"not done within 4000 ms: .*; rank 1 \(process \d+\) has queued last: all_reduce, sequence 1"
    assert re.search(told, ended.outputs[0])


def test_what_hccl_does_not_reduce_is_gathered_or_refused_and_the_group_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    ended = launch(folder, tmp_path, RANKS / "failing.py", "refused", timeout=60)
    assert ended.statuses == [0, 0]
    for output in ended.outputs:
        total = [0.1, 0.2, 0.3]
        total = torch.tensor(total).double() + (torch.tensor(total).double() + 1)
        assert f"torch.float64 {total.tolist()}" in output and "torch.uint8 [1, 1, 1]" in output
        for dtype, size in ("float64", "16.0"), ("uint8", "2.0"):
            told = rf"sum of 1048576 x {dtype}.*libhccl.so has no sum of {dtype}.* 1\.0 MiB .* not {size} MiB"
            assert re.search(told, output)
        assert (
            "{'sum of float64': {'bytes': 48, 'calls': 1}, 'sum of uint8': {'bytes': 6, 'calls': 1}}"
            in output
        )
        assert re.search(r"libhccl.so has no sum of uint64, and flagos gathers none for it", output)
        # What was refused, and float32, which HCCL reduces, are not counted; the counts outlive the group.
        counted = re.search(r"^gathered (.*)$", output, re.MULTILINE)
        assert counted is not None and json.loads(counted.group(1)) == GATHERED
        assert output.count("the library lacks a reduction") == 2  # once for each
    assert ended.misuses == []


@pytest.mark.slow
def test_the_report_tells_what_was_gathered(folder: Path, tmp_path: Path) -> None:
    """Of both ranks, which torchrun starts. A program of native reductions is the control."""
    for program, expected in (
        ([RANKS / "failing.py", "refused"], GATHERED),
        ([SHARED_RANKS / "gradients.py", "ascend"], []),
    ):
        page = tmp_path / "page.html"
        report = ["flagos", "report", "--json", "-o", str(page), "--"]
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        python = [sys.executable, "-m"]
        ended = subprocess.run(
            [*python, *report, *python, *torchrun, *map(str, program)],
            cwd=ROOT,
            env=environment(folder, tmp_path / "report", SIMULATED_ASCEND_DEVICES="2"),
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        processes = json.loads(ended.stdout)["processes"]
        assert [process["rank"] for process in processes] == ["0", "1"]
        assert [process["gathered"] for process in processes] == [expected, expected]
        text = page.read_text()
        assert text.count("<h3>Gathered reductions</h3>") == (2 if expected else 0)
        assert text.count("<b>2</b>reductions gathered") == (2 if expected else 0)


@pytest.mark.slow
def test_the_doctor_tells_what_would_be_gathered(folder: Path, tmp_path: Path) -> None:
    """By the tables, on the simulated chip and on a later one, which has wide numbers."""
    for soc, wide in ("Ascend910B3", True), ("Ascend950", False):
        ended = subprocess.run(
            [sys.executable, "-m", "flagos", "doctor", "--json"],
            env=environment(folder, tmp_path / "report", SIMULATED_ASCEND_SOC=soc),
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        checks = {check["name"]: check for check in json.loads(ended.stdout)["checks"]}
        found = checks["reductions hccl"]
        assert ("float64" in found["data"]["gathered"]) == wide
        assert found["data"]["gathered"]["int8"] == ["band", "bor", "bxor"]
        assert "sum" in found["data"]["gathered"]["uint8"]
        assert ("sum" in found["data"]["refused"]["uint64"]) == wide
        assert "float32" not in found["detail"]
        assert "Gathered up to 1 MiB of all ranks, and refused beyond: all of" in found["detail"]


@pytest.mark.parametrize(
    ("what", "misuse"),
    [
        ("one_device", "HcclCommInitRootInfo: rank 1 has the device of rank 0 (refused: 1)"),
        ("other_call", "HcclAllReduce: rank 1 calls HcclBroadcast"),
    ],
)
def test_misuses_are_recorded(folder: Path, tmp_path: Path, what: str, misuse: str) -> None:
    """Negative controls of the simulated library."""
    ended = launch(folder, tmp_path, RANKS / "failing.py", what, timeout=60)
    assert 0 not in ended.statuses
    assert any(line.startswith(misuse) for line in ended.misuses), ended.misuses


def test_a_library_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    without = tmp_path / "without"
    without.mkdir()
    for name in ("libascendcl.so", "libnnopbase.so"):
        (without / name).symlink_to(folder / name)
    ended = launch(without, tmp_path, RANKS / "failing.py", "killed", timeout=60)
    assert ended.statuses == [3, 3]
    for output in ended.outputs:
        assert re.search(
            r"the engine hccl cannot be used \(the vendor ascend, .*libhccl\.so", output
        )


def test_an_engine_can_be_asked_for(folder: Path, tmp_path: Path) -> None:
    """Also the host's, through copies."""
    shm = {"FLAGOS_COMM_ENGINE": "shm"}
    launch(folder, tmp_path, SHARED_RANKS / "gradients.py", "ascend", **shm).well()

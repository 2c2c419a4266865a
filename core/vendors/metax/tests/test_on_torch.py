"""torch on simulated MetaX devices: operators by its CUDA key, the adapter's own tests, and groups of two ranks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.vendors.metax.simulated import build
from core.vendors.metax.simulated.run import environment
from core.vendors.metax.tests.launch import launch
from tests.ranks import ROOT, SHARED

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++"),
    pytest.mark.skipif(torch.version.cuda is None, reason="torch was built without CUDA"),
]

ENGINES = {"mccl": {}, "flagcx": {"FLAGOS_COMM_ENGINE": "flagcx"}}
FAILING = ROOT / "core" / "vendors" / "ascend" / "tests" / "ranks" / "failing.py"
"""A program in which one rank fails in a way that is named, of any vendor's library."""
SUITE = ("after_errors", "autograd", "device", "fork", "graphs", "memory", "ordering", "stream")
"""Files of the adapter's tests that ask nothing of a chip's own kernels."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated libraries."""
    return build.build_for_torch(tmp_path_factory.mktemp("metax"))


def program(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
    )


def test_a_device_is_metaxs_and_so_are_its_operators(folder: Path, tmp_path: Path) -> None:
    script = (
        "import torch, torch_fl\n"
        "from torch_fl.native import native\n"
        "x = torch.arange(6.0).reshape(2, 3).to('flagos:1')\n"
        "print(native().vendor, torch.flagos.get_device_name(1), (x @ x.T).cpu().tolist())\n"
        "print(torch_fl.explain('aten::mm').data['winner'], torch.flagos.device_count())"
    )
    report = tmp_path / "report"
    done = program(folder, script, SIMULATED_METAX_REPORT=str(report))
    assert done.stdout.splitlines() == [
        "metax Simulated MXC500 [[5.0, 14.0], [14.0, 50.0]]",
        "metax.native 2",
    ], done.stderr
    assert not report.exists()


@pytest.mark.parametrize("order", ["torch, safetensors.torch", "safetensors.torch, torch"])
def test_a_checkpoint_may_be_the_first_to_mention_the_device(
    folder: Path, tmp_path: Path, order: str
) -> None:
    """Its parser reads device strings itself; registration waits for them here."""
    script = (
        f"import {order}, sys\n"
        "waits = lambda: 'torch_fl.flagos' not in sys.modules\n"
        f"file = {str(tmp_path / 'x.safetensors')!r}\n"
        "safetensors.torch.save_file({'a': torch.arange(3.0)}, file)\n"
        "for device in ('cpu', 'cuda:1', 'flagos:1'):\n"
        "    told = waits()\n"
        "    print(told, safetensors.torch.load_file(file, device=device)['a'].device, waits())\n"
        "with safetensors.safe_open(file, 'pt', device='flagos') as opened:\n"
        "    print(opened.get_tensor('a').device, isinstance(opened, safetensors.safe_open))"
    )
    done = program(folder, script)
    assert done.stdout.splitlines() == [
        "True cpu True",
        "True cuda:1 True",
        "True flagos:1 False",
        "flagos:0 True",
    ], done.stderr


@pytest.mark.slow
def test_the_doctor_finds_nothing_wrong(folder: Path) -> None:
    """Registration waits for the first use where torch has the device under another name; the doctor asks for it."""
    done = subprocess.run(
        [sys.executable, "-m", "flagos", "doctor", "--json"],
        env=environment(folder),
        capture_output=True,
        text=True,
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert {name for name, check in checks.items() if check["status"] == "fail"} == set()
    assert checks["device"]["detail"] == "flagos, 2 device(s)"
    assert checks["engine mccl"]["status"] == "ok"


def test_a_kernel_of_nvidias_is_refused(folder: Path, tmp_path: Path) -> None:
    """The control, without the kernels for these devices: an error and not numbers."""
    report = tmp_path / "report"
    done = program(
        folder,
        "import torch; x = torch.arange(3.0).to('flagos'); print((x + x).cpu())",
        SIMULATED_METAX_REPORT=str(report),
        PYTHONPATH=str(ROOT),
    )
    assert done.returncode != 0
    assert "no kernel image is available" in done.stderr
    assert "torch's kernels are not for this chip" in report.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE)
def test_the_adapters_tests_pass(folder: Path, tmp_path: Path, name: str) -> None:
    report = tmp_path / "report"
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--vendor", "metax"]
    done = subprocess.run(
        [sys.executable, *command, f"adapters/torch/tests/test_{name}.py"],
        env=environment(folder, SIMULATED_METAX_REPORT=str(report)),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed", done.stdout), done.stdout
    misuses = report.read_text().splitlines() if report.exists() else []
    assert misuses == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_every_collective_does_what_gloo_does(folder: Path, tmp_path: Path, engine: str) -> None:
    """Each rank sees one device."""
    own = {"MACA_VISIBLE_DEVICES": "own", **ENGINES[engine]}
    arguments = (SHARED / "collectives.py", "flagos", "20011", "nccl")
    for output in launch(folder, tmp_path, *arguments, **own).well().outputs:
        checked = re.search(r"checked (\d+)", output)
        assert checked is not None and int(checked.group(1)) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_are_exact_when_everything_is_late(
    folder: Path, tmp_path: Path, engine: str
) -> None:
    """DDP and FSDP2 beside one process on the CPU, each rank on a device of its own."""
    late = {"SIMULATED_METAX_DELAY_US": "1000", **ENGINES[engine]}
    launch(folder, tmp_path, SHARED / "gradients.py", "metax", **late).well()


@pytest.mark.slow
def test_training_is_that_of_one_process(folder: Path, tmp_path: Path) -> None:
    """DDP in five ways, tensor parallelism, FSDP2 with offloading; a checkpoint is read by the ranks that wrote it."""
    own = {"MACA_VISIBLE_DEVICES": "own"}
    for part in ("all", "load"):
        arguments = (SHARED / "training.py", "flagos", part, str(tmp_path / "kept"))
        launch(folder, tmp_path, *arguments, **own).well()


@pytest.mark.parametrize(
    ("what", "misuse"),
    [
        ("one_device", "CommInitRank: rank 1 has the device of rank 0 (refused: 4)"),
        ("other_call", "AllReduce: rank 1 calls Broadcast"),
    ],
)
def test_misuses_are_recorded(folder: Path, tmp_path: Path, what: str, misuse: str) -> None:
    """Negative controls of the simulated library."""
    ended = launch(folder, tmp_path, FAILING, what, timeout=60)
    assert 0 not in ended.statuses
    assert any(line.startswith(misuse) for line in ended.misuses), ended.misuses


def test_a_rank_that_was_killed_is_named(folder: Path, tmp_path: Path) -> None:
    ended = launch(folder, tmp_path, FAILING, "killed", timeout=60)
    assert ended.statuses == [-6, -9], ended.outputs
    assert re.search(r"the process of rank 1 \(process \d+\) has ended", ended.outputs[0])


def test_a_library_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    without = tmp_path / "without"
    without.mkdir()
    for name in ("libmcruntime.so", "libruntime_cu.so", build.DRIVER):
        (without / name).symlink_to(folder / name)
    for engine, library in (("mccl", "libmccl.so"), ("flagcx", "libflagcx.so")):
        ended = launch(without, tmp_path, FAILING, "killed", **ENGINES[engine])
        assert ended.statuses == [3, 3]
        for output in ended.outputs:
            assert f"the engine {engine} cannot be used" in output, output
            assert library in output, output

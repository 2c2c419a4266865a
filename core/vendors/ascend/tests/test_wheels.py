"""The wheels in a fresh environment: what they bring serves the devices, and nothing of this checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from core.vendors.ascend.tests.launch import environment

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.ascend]

WHEELS = Path(os.environ.get("WHEELS", Path(__file__).resolve().parents[4] / "dist"))
OURS = ("flagos", "torch_fl", "te_fl", "lightx2v_fl", "vllm_flagos", "flagos_trainers")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the packages of this one that are not ours, and then the wheels."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS) and entry.name != "__pycache__":
            (packages / entry.name).symlink_to(entry)
    made = home / "bin" / "python"
    install(made, "flagos-*", "flagos_ascend-*", "torch_fl-*")
    return made


def install(python: Path, *patterns: str) -> None:
    wheels = [file for pattern in patterns for file in WHEELS.glob(f"{pattern}.whl")]
    assert len(wheels) == len(patterns), f"make wheels: {WHEELS} has {wheels}"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    done = subprocess.run([*command, *map(str, wheels)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process over the simulated libraries, in a folder without this checkout."""
    libraries = Path(os.environ["LD_LIBRARY_PATH"])
    variables = environment(libraries, folder / "report")
    del variables["PYTHONPATH"]
    return subprocess.run(
        [str(python), *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_model_trains(python: Path, tmp_path: Path) -> None:
    script = """
import copy, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
x, y = torch.randn(32, 8), torch.randn(32, 1)
losses = {}
for device in ("cpu", "flagos"):
    here = copy.deepcopy(model).to(device)
    steps = torch.optim.SGD(here.parameters(), lr=0.1)
    losses[device] = []
    for _ in range(5):
        steps.zero_grad()
        loss = torch.nn.functional.mse_loss(here(x.to(device)), y.to(device))
        loss.backward()
        steps.step()
        losses[device].append(loss.item())
torch.testing.assert_close(losses["flagos"], losses["cpu"], rtol=1e-4, atol=1e-5)
assert losses["cpu"][-1] < losses["cpu"][0]
from torch_fl.aten.routing import counters
print(sum(numbers["fallbacks"] for numbers in counters().values()))
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if "libflagos_ascend" in line}))
"""
    done = run(python, tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    fallbacks, library = done.stdout.split()
    assert fallbacks == "0"
    assert Path(library).is_relative_to(python.parents[1]), library


def test_the_checklist_passes(python: Path, tmp_path: Path) -> None:
    done = run(python, tmp_path, "-m", "flagos", "vendor", "check", "ascend", "--json")
    steps = json.loads(done.stdout)["steps"]
    assert [step for step in steps if step["status"] == "fail"] == []
    assert {"manifest", "kernels", "operators", "copies-arrive"} <= {
        step["name"] for step in steps if step["status"] == "pass"
    }


def test_without_its_wheel_the_chip_is_named(python: Path, tmp_path: Path) -> None:
    """The control: the same environment serves nothing once the distribution is gone."""
    remove = [sys.executable, "-m", "pip", "--python", str(python), "uninstall", "-y"]
    subprocess.run([*remove, "flagos-ascend"], capture_output=True, check=True)
    try:
        done = run(python, tmp_path, "-c", "import torch; torch.ones(1, device='flagos')")
        assert done.returncode != 0
        assert "pip install 'flagos[ascend]'" in done.stderr
    finally:
        install(python, "flagos_ascend-*")

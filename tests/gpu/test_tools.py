"""The soak and the model benchmark pass where nothing is wrong, and fail where something is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from torch_fl.native import native

SOAK = ("gpu.soak", "--minutes", "0.05", "--threads", "4", "--seed", "1")
PAIR = f"{native().device_type},flagos"
MODELS = ("bench.gpu.models", "--small", "--rounds", "1", "--parts", "eager", "--device-pair", PAIR)


def status(tool: str, *arguments: str) -> int:
    """Exit status of a tool of this folder, or a benchmark."""
    command = [sys.executable, "-m", f"tests.{tool}", *arguments]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    print(run.stdout, run.stderr)
    assert "Traceback" not in run.stderr
    return run.returncode


@pytest.mark.slow
def test_the_soak_passes(tmp_path: Path) -> None:
    assert status(*SOAK, "--json", str(tmp_path / "soak.json")) == 0
    report = json.loads((tmp_path / "soak.json").read_text())
    assert report["memory_before"] == report["memory_after"]
    assert sum(report["steps"].values()) > 20 and len(report["steps"]) >= 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["wait", "buffer", "leak", pytest.param("replay", marks=pytest.mark.cuda)]
)
def test_the_soak_notices(kind: str) -> None:
    assert status(*SOAK, "--sabotage", kind) == 1


@pytest.mark.slow
def test_the_model_benchmark_compares(tmp_path: Path) -> None:
    assert status(*MODELS, "--json", str(tmp_path / "models.json")) == 0
    workloads = json.loads((tmp_path / "models.json").read_text())["workloads"]
    assert workloads.keys() == {"generation", "training"}
    assert all(result["ratio"]["median"] > 0 for result in workloads.values())


@pytest.mark.slow
def test_the_model_benchmark_notices_another_model() -> None:
    assert status(*MODELS, "--perturb") == 1


LIGHTX2V = ("bench.gpu.lightx2v", "--own", "--small", "--rounds", "1", "--device-pair", PAIR)


def test_the_lightx2v_benchmark_compares(tmp_path: Path) -> None:
    pytest.importorskip("lightx2v_fl", reason="the LightX2V adapter is not installed")
    assert status(*LIGHTX2V, "--json", str(tmp_path / "x2v.json")) == 0
    sides = json.loads((tmp_path / "x2v.json").read_text())["sides"]
    assert {"flagos", PAIR.split(",")[0]} <= sides.keys()
    assert all(side["ratio"]["median"] > 0 for side in sides.values())


def test_the_lightx2v_benchmark_notices_another_weight() -> None:
    pytest.importorskip("lightx2v_fl", reason="the LightX2V adapter is not installed")
    assert status(*LIGHTX2V, "--perturb") == 1


WRONG = """
def register(registry):
    from te_fl.core import BackendImplKind, OpImpl
    kind = BackendImplKind.VENDOR
    def swiglu(x, quantizer):
        return x[..., : x.shape[-1] // 2]
    registry.register_impl(OpImpl("swiglu", "vendor.wrong", kind, swiglu, "wrong"))
"""


@pytest.mark.slow
@pytest.mark.host
def test_the_benchmark_of_transformer_engines_operators_measures_and_notices_a_wrong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("te_fl", reason="the TransformerEngine adapter is not installed")
    found = tmp_path / "te.json"
    te = (
        "bench.gpu.te",
        "--device",
        "cpu",
        "--small",
        "--rounds",
        "1",
        "--no-compile",
        "--only",
        "swiglu",
    )
    assert status(*te, "--json", str(found)) == 0
    report = json.loads(found.read_text())
    (result,) = report["results"]
    assert result["submit"]["sides"]["flagos"]["median"] > 0 and result["error"]["flagos"] < 0.02
    assert report["not_measured"]["device times"] == "they need a CUDA device"
    assert report["not_measured"]["generic_gemm"] == "left out by --only"
    (tmp_path / "wrong_plugin.py").write_text(WRONG)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("TE_FL_PLUGIN_MODULES", "wrong_plugin")
    monkeypatch.setenv("TE_FL_PREFER", "vendor")
    assert status(*te, "--json", str(found)) == 1
    assert json.loads(found.read_text())["results"][0]["wrong"] == ["flagos"]


@pytest.mark.cuda
def test_torch_runs_on_the_cores_own_memory_and_streams() -> None:
    if not Path("dist/vendors/libflagos_cudalib.so").exists():
        pytest.skip("make cuda-as-library builds the library")
    assert status("cuda_library") == 0

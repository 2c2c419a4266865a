"""The torch adapter's part of `flagos doctor`: it finds what is broken, says how to fix it, and survives it.

Most of it in an interpreter without torch, where made-up packages stand for torch and for the extension.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import flagos
from python.tests.interpreters import Diagnose, FakePackages, Interpreter
from torch_fl import _shims
from torch_fl_cli.doctor.canary import CANARIES, Mismatch, compare

# The shims of a made-up adapter: never opened, since torch is made up too.
SHIMS = {
    "_shims/__init__.py": Path(_shims.__file__).read_text(encoding="utf-8"),
    "_shims/torch_2_9.so": "",
    "_shims/torch_2_11.so": "",
}
TORCH = "__version__ = '2.11.0'\n"


@pytest.fixture
def adapter(fakes: FakePackages) -> FakePackages:
    """What the adapter contributes, with neither torch nor the extension."""
    fakes.contributor("torch-fl", "torch_fl_cli")
    return fakes


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        ("raise OSError('libtorch.so: file too short')", "file too short"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import sys; sys.exit(3)", "status 3"),
        ("import time; time.sleep(600)", "did not finish in 3 s"),
    ],
)
def test_a_torch_that_does_not_import(
    diagnose: Diagnose, adapter: FakePackages, torch: str, reason: str
) -> None:
    adapter.package("torch", {"__init__.py": torch})
    adapter.distribution("torch", "2.11.0")
    result, checks = diagnose("--timeout", "3")
    assert result.status == 1
    assert checks["torch"]["status"] == "fail"
    assert reason in checks["torch"]["detail"]
    assert "--force-reinstall" in checks["torch"]["fix"]
    assert checks["core"]["status"] == "ok"


def test_an_extension_for_another_torch_is_not_opened(
    diagnose: Diagnose, adapter: FakePackages
) -> None:
    adapter.package("torch", {"__init__.py": "__version__ = '2.10.1+cpu'"})
    adapter.distribution("torch", "2.10.1+cpu")
    opened = adapter.folder / "opened"
    adapter.package(
        "torch_fl",
        {
            "__init__.py": f"open({str(opened)!r}, 'w'); import os; os.abort()",
            **SHIMS,
        },
    )
    result, checks = diagnose()
    assert result.status == 1
    assert checks["torch"]["status"] == "ok"
    assert checks["torch_fl"]["status"] == "fail"
    assert "built for torch 2.9, 2.11, but torch 2.10.1+cpu" in checks["torch_fl"]["detail"]
    assert "torch==2.11.*" in checks["torch_fl"]["fix"]
    assert not opened.exists()
    assert not any(name.startswith("canary") for name in checks)


def test_a_missing_torch_that_the_adapter_needs(diagnose: Diagnose, adapter: FakePackages) -> None:
    adapter.package("torch_fl", {"__init__.py": "", **SHIMS})
    result, checks = diagnose()
    assert result.status == 1
    assert "torch==2.11.*" in checks["torch"]["fix"]


def test_an_extension_that_crashes(diagnose: Diagnose, adapter: FakePackages) -> None:
    adapter.package("torch", {"__init__.py": TORCH})
    adapter.distribution("torch", "2.11.0")
    adapter.package("torch_fl", {"__init__.py": "import os; os.abort()", **SHIMS})
    result, checks = diagnose()
    assert result.status == 1
    assert checks["torch"]["status"] == "ok"
    assert "SIGABRT" in checks["torch_fl"]["detail"]


def test_an_extension_that_is_not_there(diagnose: Diagnose, adapter: FakePackages) -> None:
    adapter.package("torch", {"__init__.py": TORCH})
    adapter.distribution("torch", "2.11.0")
    result, checks = diagnose()
    assert result.status == 1
    assert "installation is incomplete" in checks["torch_fl"]["detail"]


def test_another_plugin_for_the_same_slot(diagnose: Diagnose, adapter: FakePackages) -> None:
    adapter.distribution(
        "torch-npu", "2.11.0", "[torch.backends]\ntorch_npu = torch_npu:_autoload\n"
    )
    _, checks = diagnose()
    assert checks["device plugins"]["status"] == "warn"
    assert checks["device plugins"]["data"]["others"] == ["torch_npu (torch_npu:_autoload)"]


def test_the_alias_of_cuda_is_shown(diagnose: Diagnose, adapter: FakePackages) -> None:
    assert "cuda names" not in diagnose()[1]
    _, checks = diagnose(FLAGOS_ALIAS_CUDA="1")
    assert "`cuda` means flagos" in checks["cuda names"]["detail"]


def test_autoload_switched_off(diagnose: Diagnose, adapter: FakePackages) -> None:
    adapter.package("torch_fl", {"__init__.py": "", **SHIMS})
    _, checks = diagnose(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert checks["autoload"]["status"] == "warn"


@pytest.mark.needs("triton")
def test_flaggems_without_triton(diagnose: Diagnose, adapter: FakePackages) -> None:
    adapter.distribution("flag-gems", "5.0.2")
    _, checks = diagnose()
    assert checks["flaggems"]["status"] == "warn"
    assert checks["flaggems"]["fix"] == "pip install triton"


def test_a_wrong_flaggems_source(diagnose: Diagnose, adapter: FakePackages, tmp_path: Path) -> None:
    result, checks = diagnose(FLAGGEMS_SOURCE_DIR=str(tmp_path / "nowhere"))
    assert result.status == 1
    assert "src/flag_gems" in checks["flaggems"]["fix"]


# ---- the device


def test_a_sound_installation_passes(interpreter: Interpreter) -> None:
    result = interpreter.flagos("doctor", "--json")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert [name for name, check in checks.items() if check["status"] == "fail"] == []
    assert result.status == 0
    assert checks["device"]["data"]["owner"] == "flagos"
    for canary in CANARIES:
        assert checks[f"canary {canary.__name__.replace('_', ' ')}"]["status"] == "ok"


@pytest.mark.host
@pytest.mark.parametrize(
    ("variable", "says"),
    [("auto", "on by the variable FLAGOS_GRAPHS"), ("off", "off by the variable FLAGOS_GRAPHS")],
)
def test_automatic_graphs_are_told(interpreter: Interpreter, variable: str, says: str) -> None:
    result = interpreter.flagos("doctor", "--json", FLAGOS_GRAPHS=variable)
    checks = {check["name"]: check for check in result.json["checks"]}
    assert says in checks["automatic graphs"]["detail"]
    assert checks["automatic graphs"]["data"]["on"] is (variable == "auto")
    canary = checks["graphs of the canary"]["data"]
    assert canary["followed"] > 0 and canary["bytes_held"] > 0


@pytest.mark.slow
@pytest.mark.host
def test_a_queue_that_the_vendor_cannot_have_fails(interpreter: Interpreter) -> None:
    result = interpreter.flagos("doctor", "--json", FLAGOS_QUEUE="auto")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert checks["queue"]["status"] == "fail"
    assert "on the vendor host" in checks["queue"]["detail"]
    assert "unset FLAGOS_QUEUE" in checks["queue"]["fix"]


@pytest.mark.slow
@pytest.mark.needs("faults")
def test_a_device_without_memory_fails_its_canaries(interpreter: Interpreter) -> None:
    result = interpreter.flagos("doctor", "--json", FLAGOS_HOST_FAULT="alloc=1.0")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert result.status == 1
    assert checks["canary mm"]["status"] == "fail"
    assert "OutOfMemoryError" in checks["canary mm"]["detail"]
    assert "\n" not in checks["canary mm"]["detail"]


def test_a_route_for_an_operator_that_does_not_exist(interpreter: Interpreter) -> None:
    result = interpreter.flagos("doctor", "--json", "--no-canaries", FLAGOS_OP_softmaks__int="cpu")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert result.status == 1
    assert "softmaks" in checks["plan"]["detail"]
    assert "softmax" in checks["plan"]["fix"]


def test_a_route_that_nothing_here_serves(interpreter: Interpreter) -> None:
    absent = "metax" if flagos.devices()[0]["vendor"] == "ascend" else "ascend"
    result = interpreter.flagos("doctor", "--json", "--no-canaries", FLAGOS_OP_mish=absent)
    plan = next(check for check in result.json["checks"] if check["name"] == "plan")
    assert plan["status"] == "warn"
    assert f"aten::mish = {absent} (the variable FLAGOS_OP_mish)" in plan["detail"]
    assert "|cpu" in plan["fix"]


def test_the_comparison_of_the_canaries_refuses_lies() -> None:
    right = torch.arange(4.0)
    compare(right.to("flagos"), right)
    with pytest.raises(Mismatch, match="values"):
        compare((right + 1e-3).to("flagos"), right)
    with pytest.raises(Mismatch, match="shape"):
        compare(right.reshape(2, 2).to("flagos"), right)
    with pytest.raises(Mismatch, match="not on flagos"):
        compare(right, right)

"""The doctor finds what is broken, says how to fix it, and survives it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import flagos
from flagos.doctor.canary import CANARIES, Mismatch, compare
from flagos.doctor.check import Check, Status, worst
from flagos.doctor.libraries import LIBRARIES, find
from python.tests.conftest import Diagnose
from python.tests.interpreters import FakePackages, Interpreter

TORCH = "__version__ = '2.11.0'\n"
BUILT_FOR = 'TORCH_VERSION = "2.11"\n'


def test_a_problem_always_comes_with_a_fix() -> None:
    with pytest.raises(ValueError, match="no fix"):
        Check("x", Status.FAIL, "broken")


def test_the_worst_check_decides() -> None:
    ok, warn = Check("a", Status.OK, ""), Check("b", Status.WARN, "", "do")
    assert worst([]) is Status.OK
    assert worst([warn, ok]) is Status.WARN
    assert worst([warn, Check("c", Status.FAIL, "", "do"), ok]) is Status.FAIL


def test_the_json_has_one_shape(diagnose: Diagnose) -> None:
    result, checks = diagnose()
    assert set(result.json) == {"status", "checks"}
    for check in checks.values():
        assert set(check) == {"name", "status", "detail", "fix", "data"}
        assert check["status"] in {"ok", "warn", "fail"}
        assert (check["fix"] is None) is (check["status"] == "ok")


def test_without_torch_everything_else_is_examined(diagnose: Diagnose) -> None:
    result, checks = diagnose()
    assert result.status == 0, result.err
    assert result.json["status"] == "warn"
    assert checks["core"]["data"]["version"] == flagos.__version__
    assert checks["torch"]["status"] == "warn"
    assert "pip install 'flagos[torch]'" in checks["torch"]["fix"]
    assert checks["devices"]["data"]["devices"][0]["vendor"] == "host"
    assert checks["vendor host"]["data"]["vendor"]["chosen"]
    assert checks["vendor cuda"]["data"]["vendor"]["reason"] in checks["vendor cuda"]["detail"]
    assert "library libcuda.so.1" in checks


def test_text_shows_each_check_and_its_fix(without_torch: Interpreter) -> None:
    result = without_torch.flagos("doctor")
    assert result.status == 0, result.err
    assert "OK    python: " in result.out
    assert "WARN  torch: not installed\n      fix: pip install" in result.out
    assert result.out.splitlines()[-1].endswith("0 fail")


# ---- torch


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
    diagnose: Diagnose, fakes: FakePackages, torch: str, reason: str
) -> None:
    fakes.package("torch", {"__init__.py": torch})
    fakes.distribution("torch", "2.11.0")
    result, checks = diagnose("--timeout", "3")
    assert result.status == 1
    assert checks["torch"]["status"] == "fail"
    assert reason in checks["torch"]["detail"]
    assert "--force-reinstall" in checks["torch"]["fix"]
    assert checks["core"]["status"] == "ok"


def test_an_extension_for_another_torch_is_not_opened(
    diagnose: Diagnose, fakes: FakePackages
) -> None:
    fakes.package("torch", {"__init__.py": "__version__ = '2.9.1+cpu'"})
    fakes.distribution("torch", "2.9.1+cpu")
    opened = fakes.folder / "opened"
    fakes.package(
        "torch_fl",
        {
            "__init__.py": f"open({str(opened)!r}, 'w'); import os; os.abort()",
            "_build.py": BUILT_FOR,
        },
    )
    fakes.distribution("torch-fl", flagos.__version__)
    result, checks = diagnose()
    assert result.status == 1
    assert checks["torch"]["status"] == "ok"
    assert checks["torch_fl"]["status"] == "fail"
    assert "built for torch 2.11, but torch 2.9.1+cpu" in checks["torch_fl"]["detail"]
    assert "torch==2.11.*" in checks["torch_fl"]["fix"]
    assert not opened.exists()
    assert not any(name.startswith("canary") for name in checks)


def test_a_missing_torch_that_the_adapter_needs(diagnose: Diagnose, fakes: FakePackages) -> None:
    fakes.package("torch_fl", {"__init__.py": "", "_build.py": BUILT_FOR})
    result, checks = diagnose()
    assert result.status == 1
    assert "torch==2.11.*" in checks["torch"]["fix"]


def test_an_extension_that_crashes(diagnose: Diagnose, fakes: FakePackages) -> None:
    fakes.package("torch", {"__init__.py": TORCH})
    fakes.distribution("torch", "2.11.0")
    fakes.package("torch_fl", {"__init__.py": "import os; os.abort()", "_build.py": BUILT_FOR})
    result, checks = diagnose()
    assert result.status == 1
    assert checks["torch"]["status"] == "ok"
    assert "SIGABRT" in checks["torch_fl"]["detail"]


def test_versions_that_differ(diagnose: Diagnose, fakes: FakePackages) -> None:
    fakes.distribution("torch-fl", "0.0.9")
    result, checks = diagnose()
    assert result.status == 1
    assert f"flagos is {flagos.__version__}" in checks["distribution torch-fl"]["detail"]


def test_another_plugin_for_the_same_slot(diagnose: Diagnose, fakes: FakePackages) -> None:
    fakes.distribution("torch-npu", "2.11.0", "[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    _, checks = diagnose()
    assert checks["device plugins"]["status"] == "warn"
    assert checks["device plugins"]["data"]["others"] == ["torch_npu (torch_npu:_autoload)"]


def test_autoload_switched_off(diagnose: Diagnose, fakes: FakePackages) -> None:
    fakes.package("torch_fl", {"__init__.py": "", "_build.py": BUILT_FOR})
    _, checks = diagnose(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert checks["autoload"]["status"] == "warn"


# ---- the core


def test_a_core_that_does_not_load(without_torch: Interpreter, fakes: FakePackages) -> None:
    package = Path(flagos.__file__).parent
    skip = shutil.ignore_patterns("_core*.so", "__pycache__")
    shutil.copytree(package, fakes.folder / "flagos", ignore=skip)
    (fakes.folder / "flagos" / "_core.abi3.so").write_bytes(b"not a library")
    path = {"PYTHONPATH": str(fakes.folder)}
    result = without_torch.flagos("doctor", "--json", **path)
    assert result.status == 1
    checks = {check["name"]: check for check in result.json["checks"]}
    assert checks["core"]["status"] == "fail"
    assert "_core.abi3.so" in checks["core"]["detail"]
    assert "--force-reinstall" in checks["core"]["fix"]
    assert checks["torch"]["status"] == "warn"
    devices = without_torch.flagos("devices", **path)
    assert devices.status == 1
    assert "flagos doctor" in devices.err and "Traceback" not in devices.err


# ---- configuration


def test_unknown_variables_are_each_reported(diagnose: Diagnose) -> None:
    result, checks = diagnose(FLAGOS_LOGG="1", FLAGOS_STRICTT="1", FLAGOS_STRICT="1")
    assert result.status == 1
    assert "FLAGOS_LOG" in checks["variable FLAGOS_LOGG"]["fix"]
    assert "FLAGOS_STRICT" in checks["variable FLAGOS_STRICTT"]["fix"]
    assert "FLAGOS_STRICT=1" in checks["variables"]["data"]["set"]
    assert "FLAGOS_STRICTT" not in checks["variables"]["detail"]


def test_a_mistake_in_a_file_is_reported_with_its_line(
    diagnose: Diagnose, without_torch: Interpreter
) -> None:
    (without_torch.folder / "flagos.toml").write_text("[policy]\nstrikt = true\n")
    result, checks = diagnose()
    assert result.status == 1
    assert "flagos.toml:2" in checks["configuration"]["detail"]
    assert "strict" in checks["configuration"]["fix"]


def test_files_that_were_read_are_listed(diagnose: Diagnose, without_torch: Interpreter) -> None:
    (without_torch.folder / "flagos.toml").write_text('include = ["more.toml"]\n')
    (without_torch.folder / "more.toml").write_text("[policy]\nstrict = true\n")
    _, checks = diagnose()
    files = checks["configuration"]["data"]["files"]
    assert [Path(file).name for file in files] == ["flagos.toml", "more.toml"]


# ---- libraries, kernels


def test_a_library_is_found_where_the_linker_looks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = next(library for library in LIBRARIES if "libcuda.so.1" in library.sonames)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert find(driver, {}) is None
    cached = tmp_path / "cached.so"
    cached.touch()
    assert find(driver, {"libcuda.so.1": cached}) == cached
    first = tmp_path / "libcuda.so.1"
    first.touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"nowhere{os.pathsep}{tmp_path}")
    assert find(driver, {"libcuda.so.1": cached}) == first


def test_a_library_everybody_can_change_is_a_warning(diagnose: Diagnose, tmp_path: Path) -> None:
    library = tmp_path / "libflagcx.so"
    library.touch()
    library.chmod(0o666)
    _, checks = diagnose(LD_LIBRARY_PATH=str(tmp_path))
    check = checks["library libflagcx.so"]
    assert check["status"] == "warn"
    assert check["data"]["path"] == str(library)
    assert f"chmod o-w {library}" in check["fix"]


def test_flaggems_without_triton(diagnose: Diagnose, fakes: FakePackages) -> None:
    fakes.distribution("flag-gems", "5.0.2")
    _, checks = diagnose()
    assert checks["flaggems"]["status"] == "warn"
    assert checks["flaggems"]["fix"] == "pip install triton"


def test_a_wrong_flaggems_source(diagnose: Diagnose, tmp_path: Path) -> None:
    result, checks = diagnose(FLAGGEMS_SOURCE_DIR=str(tmp_path / "nowhere"))
    assert result.status == 1
    assert "src/flag_gems" in checks["flaggems"]["fix"]


# ---- the device


def test_a_sound_installation_passes(interpreter: Interpreter) -> None:
    pytest.importorskip("torch_fl", reason="the canaries need the torch adapter")
    result = interpreter.flagos("doctor", "--json")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert [name for name, check in checks.items() if check["status"] == "fail"] == []
    assert result.status == 0
    assert checks["device"]["data"]["owner"] == "flagos"
    for canary in CANARIES:
        assert checks[f"canary {canary.__name__.replace('_', ' ')}"]["status"] == "ok"


def test_a_device_without_memory_fails_its_canaries(interpreter: Interpreter) -> None:
    pytest.importorskip("torch_fl", reason="the canaries need the torch adapter")
    result = interpreter.flagos("doctor", "--json", FLAGOS_HOST_FAULT="alloc=1.0")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert result.status == 1
    assert checks["canary mm"]["status"] == "fail"
    assert "OutOfMemoryError" in checks["canary mm"]["detail"]
    assert "\n" not in checks["canary mm"]["detail"]


def test_a_route_for_an_operator_that_does_not_exist(interpreter: Interpreter) -> None:
    pytest.importorskip("torch_fl", reason="names are checked against the adapter's operators")
    result = interpreter.flagos("doctor", "--json", "--no-canaries", FLAGOS_OP_softmaks__int="cpu")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert result.status == 1
    assert "softmaks" in checks["plan"]["detail"]
    assert "softmax" in checks["plan"]["fix"]


def test_the_comparison_of_the_canaries_refuses_lies() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_fl", reason="the canaries need the torch adapter")
    right = torch.arange(4.0)
    compare(right.to("flagos"), right)
    with pytest.raises(Mismatch, match="values"):
        compare((right + 1e-3).to("flagos"), right)
    with pytest.raises(Mismatch, match="shape"):
        compare(right.reshape(2, 2).to("flagos"), right)
    with pytest.raises(Mismatch, match="not on flagos"):
        compare(right, right)


def test_a_transformer_engine_that_needs_a_newer_cublas_is_told_apart() -> None:
    from flagos.doctor.transformer_engine import remedy

    missing = "undefined symbol: cublasLtGroupedMatrixLayoutInit_internal"
    assert "newer cuBLAS" in remedy(f"OSError: libtransformer_engine.so: {missing}")
    assert "reinstall" in remedy("OSError: libtransformer_engine.so: undefined symbol: other")


def test_asking_for_a_plugin_without_transformer_engine_is_a_problem(
    without_torch: Interpreter,
) -> None:
    result = without_torch.flagos("doctor", "--json", NVTE_PLUGIN="te_fl")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert "pip install 'flagos[te]'" in checks["NVTE_PLUGIN"]["fix"]
    assert "NVTE_PLUGIN=te_fl is set" in checks["transformer_engine"]["detail"]


def test_a_plugin_that_the_variable_names_and_nothing_finds_is_a_problem() -> None:
    from flagos.doctor.check import Status
    from flagos.doctor.transformer_engine import checks

    pytest.importorskip("te_fl")
    told = {}
    for module in ("no_such_plugin", "te_fl"):
        with pytest.MonkeyPatch.context() as variables:
            variables.setenv("TE_FL_PLUGIN_MODULES", module)
            (told[module],) = (c for c in checks(120.0) if c.name == "TE_FL_PLUGIN_MODULES")
    assert told["te_fl"].status is Status.OK
    broken = told["no_such_plugin"]
    assert broken.status is Status.FAIL and "No module named 'no_such_plugin'" in broken.detail

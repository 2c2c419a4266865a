"""The doctor finds what is broken, says how to fix it, and survives it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import flagos
from flagos.doctor.check import Check, Status, worst
from flagos.doctor.libraries import Library, find, of_vendors
from python.tests.interpreters import Diagnose, FakePackages, Interpreter


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


def test_without_an_adapter_everything_else_is_examined(diagnose: Diagnose) -> None:
    result, checks = diagnose()
    assert result.status == 0, result.err
    assert result.json["status"] == "warn"
    assert checks["core"]["data"]["version"] == flagos.__version__
    assert checks["distribution torch-fl"]["status"] == "warn"
    assert "pip install 'flagos[torch]'" in checks["distribution torch-fl"]["fix"]
    assert checks["devices"]["data"]["devices"][0]["vendor"] == "host"
    assert checks["vendor host"]["data"]["vendor"]["chosen"]
    assert checks["vendor cuda"]["data"]["vendor"]["reason"] in checks["vendor cuda"]["detail"]
    assert "library libcuda.so.1" in checks


def test_text_shows_each_check_and_its_fix(without_torch: Interpreter) -> None:
    result = without_torch.flagos("doctor")
    assert result.status == 0, result.err
    assert "OK    python: " in result.out
    assert "WARN  distribution torch-fl: not installed\n      fix: pip install" in result.out
    assert result.out.splitlines()[-1].endswith("0 fail")


def test_versions_that_differ(diagnose: Diagnose, fakes: FakePackages) -> None:
    fakes.distribution("torch-fl", "0.0.9")
    result, checks = diagnose()
    assert result.status == 1
    assert f"flagos is {flagos.__version__}" in checks["distribution torch-fl"]["detail"]


def test_the_version_of_a_chips_wheel_differs(diagnose: Diagnose, fakes: FakePackages) -> None:
    entry = "[flagos.vendors]\nmade-up = made_up\n"
    fakes.distribution("flagos-made-up", "0.0.9", entry)
    fakes.distribution("made-up-flagos", "0.0.9", entry)  # a stranger's
    result, checks = diagnose()
    assert result.status == 1
    check = checks["distribution flagos-made-up"]
    assert check["detail"] == f"0.0.9, but flagos is {flagos.__version__}"
    assert check["fix"] == f"pip install 'flagos-made-up=={flagos.__version__}'"
    assert "distribution made-up-flagos" not in checks


def test_a_variable_that_asks_for_an_adapter_that_is_missing_is_a_problem(
    without_torch: Interpreter,
) -> None:
    result = without_torch.flagos("doctor", "--json", NVTE_PLUGIN="te_fl")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert result.status == 1
    assert "NVTE_PLUGIN=te_fl is set" in checks["NVTE_PLUGIN"]["detail"]
    assert "pip install 'flagos[te]'" in checks["NVTE_PLUGIN"]["fix"]


# ---- what adapters contribute

ENTRIES = """[flagos.doctor.checks]
{name} = made_up_{name}:checks
[flagos.doctor.canaries]
{name} = made_up_{name}:canaries
"""

SOUND = """
from flagos.doctor.check import ok

def checks(timeout):
    yield ok("made up", f"{timeout:g} s")

def canaries(timeout, found):
    yield ok("made up canary", found["made up"].detail)
"""


def contributed(fakes: FakePackages, name: str, source: str) -> None:
    fakes.package(f"made_up_{name}", {"__init__.py": source})
    fakes.distribution(f"made-up-{name}", "1.0", ENTRIES.format(name=name))


def test_an_adapter_contributes_checks_and_canaries(
    diagnose: Diagnose, fakes: FakePackages
) -> None:
    contributed(fakes, "sound", SOUND)
    result, checks = diagnose("--timeout", "7")
    assert result.status == 0, result.err
    assert checks["made up"]["detail"] == checks["made up canary"]["detail"] == "7 s"
    names = list(checks)
    assert names.index("made up") < names.index("library libcuda.so.1")
    assert names[-1] == "made up canary"
    assert "made up canary" not in diagnose("--no-canaries")[1]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise OSError('libmade.so: undefined symbol')", "undefined symbol"),
        ("x = 1", "checks"),
        ("checks = 1", "made_up_broken:checks is no function"),
        ("def checks(timeout): yield 'all well'", "reports str where flagos.doctor.Check belongs"),
        ("def checks(timeout): yield 1 / 0", "ZeroDivisionError"),
    ],
)
def test_an_adapter_that_cannot_be_asked_is_named_and_the_others_go_on(
    diagnose: Diagnose, fakes: FakePackages, source: str, reason: str
) -> None:
    contributed(fakes, "broken", source)
    contributed(fakes, "sound", SOUND)
    result, checks = diagnose()
    assert result.status == 1
    assert checks["adapter broken"]["status"] == "fail"
    assert "made-up-broken" in checks["adapter broken"]["detail"]
    assert reason in checks["adapter broken"]["detail"]
    assert checks["adapter broken"]["fix"].endswith("--no-deps made-up-broken")
    assert checks["made up"]["status"] == checks["made up canary"]["status"] == "ok"


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
    assert checks["distribution torch-fl"]["status"] == "warn"
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


# ---- libraries


def test_a_library_is_found_where_the_linker_looks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (driver,) = (library for library in of_vendors(in_use=True) if library.name == "cuda")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert find(driver, {}) is None
    cached = tmp_path / "cached.so"
    cached.touch()
    assert find(driver, {"libcuda.so.1": cached}) == cached
    first = tmp_path / "libcuda.so.1"
    first.touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"nowhere{os.pathsep}{tmp_path}")
    assert find(driver, {"libcuda.so.1": cached}) == first


def test_a_library_is_found_where_installers_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    library = Library("collectives", "libmade-up.so.2")
    packaged = tmp_path / "chips" / "made-up" / "lib" / "libmade-up.so.2"
    packaged.parent.mkdir(parents=True)
    packaged.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find(library, {}) == packaged
    installed = tmp_path / "opt" / "lib64" / "libmade-up.so.2"
    installed.parent.mkdir(parents=True)
    installed.touch()
    monkeypatch.setenv("MADE_UP_HOME", str(tmp_path / "opt"))
    assert find(library, {}) == installed


def test_a_library_everybody_can_change_is_a_warning(diagnose: Diagnose, tmp_path: Path) -> None:
    library = tmp_path / "libflagcx.so"
    library.touch()
    library.chmod(0o666)
    _, checks = diagnose(LD_LIBRARY_PATH=str(tmp_path))
    check = checks["library libflagcx.so"]
    assert check["status"] == "warn"
    assert check["data"]["path"] == str(library)
    assert f"chmod o-w {library}" in check["fix"]

"""`flagos ascend triton`: what it looks at, and what it says.

On the real wheel: `core/vendors/ascend/tests/triton_ascend`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flagos.cli.output import CommandError
from flagos.doctor.check import Check, Status
from torch_fl_cli import ascend
from torch_fl_cli.doctor import kernels, triton_ascend

CHECKS = ["vendor", "triton-ascend", "package triton", "torch_npu", "pybind11", "CANN"]
CHECKS += ["kernel compiler", "launcher compiler"]


class Machine:
    """A machine on which triton-ascend can be used, for tests to take something away."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        self.versions = {"triton-ascend": "3.2.0", "pybind11": "3.1.0"}
        self.modules = {"triton": str(folder / "triton"), "pybind11": str(folder / "pybind11")}
        self.vendor = "ascend"
        for file in (
            "triton/backends/ascend/driver.py",
            "cann/include/experiment/runtime/runtime/rt.h",
            "cann/lib64/libruntime.so",
            "cann/lib64/libascendcl.so",
            "bin/bishengir-compile",
            "bin/g++",
            "python/Python.h",
        ):
            self.file(file)
        monkeypatch.setenv("ASCEND_HOME_PATH", str(folder / "cann"))
        monkeypatch.setenv("PATH", str(folder / "bin"))
        for name in ("CC", "TRITON_NPU_COMPILER_PATH", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(triton_ascend, "installed_version", self.versions.get)
        monkeypatch.setattr(triton_ascend, "find_spec", self._spec)
        core = SimpleNamespace(vendor_info=self._info, FlagosError=RuntimeError)
        monkeypatch.setattr("flagos._core", core)
        monkeypatch.setitem(sys.modules, "flagos._core", core)
        monkeypatch.setattr(
            triton_ascend.sysconfig, "get_paths", lambda: {"include": str(folder / "python")}
        )

    def file(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
        return path

    def _spec(self, name: str) -> SimpleNamespace | None:
        place = self.modules.get(name)
        return None if place is None else SimpleNamespace(submodule_search_locations=[place])

    def _info(self) -> dict[str, str | None]:
        ascend = self.vendor == "ascend"
        name = "ascend" if ascend else None
        serving = "library" if ascend else "host"
        return {
            "name": self.vendor,
            "triton_backend": name,
            "flaggems_vendor": name,
            "serving": serving,
        }

    def checks(self) -> dict[str, Check]:
        return {check.name: check for check in triton_ascend.static()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_where_nothing_is_missing_every_check_is_ok(machine: Machine) -> None:
    found = machine.checks()
    assert list(found) == CHECKS
    assert {check.status for check in found.values()} == {Status.OK}
    assert triton_ascend.way() == "a driver made active in memory"
    machine.file("triton/backends/ascend/backend_register.py")
    assert triton_ascend.way() == "its registry of frameworks"


@pytest.mark.parametrize(
    ("missing", "name", "said", "fix"),
    [
        ("triton/backends/ascend/driver.py", "package triton", "no back end", "pip uninstall"),
        ("cann/include/experiment/runtime/runtime/rt.h", "CANN", "rt.h", "not its runtime alone"),
        ("cann/lib64/libruntime.so", "CANN", "libruntime.so", "set_env.sh"),
        ("bin/bishengir-compile", "kernel compiler", "bishengir-compile", "set_env.sh"),
        ("bin/g++", "launcher compiler", "no C++ compiler", "CC"),
        ("python/Python.h", "launcher compiler", "Python.h", "python3-dev"),
    ],
)
def test_a_missing_file_is_named_with_the_next_step(
    machine: Machine, missing: str, name: str, said: str, fix: str
) -> None:
    (machine.folder / missing).unlink()
    found = machine.checks()
    failed = [check for check in found.values() if check.status is Status.FAIL]
    assert [check.name for check in failed] == [name]
    assert said in failed[0].detail and fix in str(failed[0].fix)


def test_newer_places_are_found_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "cann/include/experiment/runtime/runtime/rt.h").unlink()
    (machine.folder / "bin/bishengir-compile").unlink()
    machine.file("cann/pkg_inc/runtime/runtime/rt.h")
    bundled = machine.file("triton/backends/ascend/bishengir/bin/bishengir-compile")
    found = machine.checks()
    assert found["CANN"].status is Status.OK
    assert found["kernel compiler"].detail == str(bundled)
    bundled.unlink()
    named = machine.file("compiler/npuc")
    monkeypatch.setenv("TRITON_NPU_COMPILER_PATH", str(named.parent))
    assert machine.checks()["kernel compiler"].detail == str(named)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (None, Status.FAIL),
        ("3.1.0", Status.FAIL),
        ("3.2.0rc4", Status.FAIL),
        ("2.9", Status.FAIL),
        ("unknown", Status.FAIL),
        ("3.2.0", Status.OK),
        ("3.2.0.post1", Status.OK),
        ("3.2.1", Status.OK),
        ("3.5.0", Status.OK),
        ("3.6.0", Status.WARN),
        ("4.0", Status.WARN),
    ],
)
def test_versions(machine: Machine, version: str | None, status: Status) -> None:
    machine.versions.pop("triton-ascend")
    if version is not None:
        machine.versions["triton-ascend"] = version
    check = machine.checks()["triton-ascend"]
    assert check.status is status and (version or "not installed") in check.detail


def test_packages_that_stand_in_the_way(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.versions["triton"] = "3.6.0"
    check = machine.checks()["package triton"]
    assert check.status is Status.FAIL and "3.6.0 is installed too" in check.detail
    machine.versions["torch_npu"] = "2.7.1"
    check = machine.checks()["torch_npu"]
    assert check.status is Status.FAIL and "PrivateUse1" in check.detail
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    assert machine.checks()["torch_npu"].status is Status.WARN
    del machine.modules["pybind11"], machine.modules["triton"]
    found = machine.checks()
    assert found["pybind11"].fix == "pip install pybind11"
    assert found["package triton"].detail == "there is none"


def test_the_command_ends_with_the_first_problem_and_its_next_step(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH")
    assert ascend.run(["triton"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-2].endswith("cannot be used with flagos: CANN: ASCEND_HOME_PATH is not set")
    assert said[-1] == "next step: source set_env.sh of CANN's toolkit"
    assert ascend.run(["triton", "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["usable"] is False and value["version"] == "3.2.0"
    assert value["next_step"] == "source set_env.sh of CANN's toolkit"
    assert "simulation only" in value["verified"]
    assert [check["name"] for check in value["checks"]] == CHECKS  # the driver is not tried


def test_the_driver_is_tried_last(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [
        SimpleNamespace(report=lambda stage: None, failure="ImportError: no torch"),
        SimpleNamespace(
            report=lambda stage: {"driver": "FlagosDriver", "target": "Ascend910B3", "devices": 2},
            failure=None,
        ),
    ]
    monkeypatch.setattr(triton_ascend, "run_module", lambda *_, **__: outcomes.pop(0))
    assert ascend.run(["triton"]) == 1
    assert "driver: Triton does not import" in capsys.readouterr().out
    assert ascend.run(["triton"]) == 0
    said = capsys.readouterr().out
    assert "FlagosDriver for Ascend910B3, 2 devices" in said and "by simulation only" in said


def test_a_program_is_started_when_nothing_is_missing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(ascend.os, "execvp", lambda name, words: started.append((name, words)))
    # Set first: only then does `monkeypatch` take away at the end what the command sets.
    monkeypatch.setenv("FLAGOS_VENDOR", "host")
    monkeypatch.delenv("FLAGOS_VENDOR")
    machine.file("bin/train")
    ascend.run(["triton", "--", "train", "--json", "--", "x"])
    assert started == [("train", ["train", "--json", "--", "x"])]
    assert ascend.os.environ["FLAGOS_VENDOR"] == "ascend"
    for arguments, said in (
        (["triton", "--"], "no program"),
        (["triton", "--", "no"], "not found"),
    ):
        with pytest.raises(CommandError, match=said):
            ascend.run(arguments)
    machine.vendor = "host"
    with pytest.raises(CommandError, match="host serves the device") as error:
        ascend.run(["triton", "--", "train"])
    assert "FLAGOS_VENDOR=ascend" in str(error.value.hint)
    assert len(started) == 1


def test_without_a_subcommand_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert ascend.run([]) == 2
    assert "triton" in capsys.readouterr().out


def test_the_doctor_points_to_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"triton": "3.6.0"}
    monkeypatch.setattr(kernels, "installed_version", versions.get)
    check = kernels.triton()
    assert check.status is Status.WARN and "no back end for Ascend" in check.detail
    versions["triton-ascend"] = "3.2.0"
    assert "flagos ascend triton" in kernels.triton().detail
    machine.vendor = "host"
    assert "ascend triton" not in kernels.triton().detail


def test_the_doctor_says_that_flaggems_is_unverified(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless this machine has verdicts, which lie where FlagGems' tables are kept."""
    versions = {"flag-gems": "5.0.2"}
    monkeypatch.setattr(kernels, "installed_version", versions.get)
    monkeypatch.setenv("XDG_DATA_HOME", str(machine.folder))
    monkeypatch.delenv("FLAGGEMS_SOURCE_DIR", raising=False)
    assert "triton-ascend" in str(kernels.flaggems().fix)
    versions["triton-ascend"] = "3.2.0"
    check = kernels.flaggems()
    assert check.status is Status.OK and "unverified on ascend" in check.detail
    from torch_fl.flaggems import tables

    monkeypatch.setattr(tables, "chip", lambda: "ascend")
    machine.file(f"flagos/{tables.file_name('verdicts', tables.chip(), '5.0.2')}")
    assert tables.folder() == machine.folder / "flagos"
    assert kernels.flaggems().detail == "5.0.2"
    machine.vendor = "host"
    assert "unverified" not in kernels.flaggems().detail

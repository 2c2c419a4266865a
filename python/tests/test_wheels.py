"""A machine with a chip and without the distribution that serves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from python.tests.interpreters import Interpreter

RUNTIMES = {"ascend": "libascendcl.so", "metax": "libmcruntime.so"}


@pytest.fixture(params=RUNTIMES)
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine(vendor: str, tmp_path: Path, without_torch: Interpreter) -> dict[str, str]:
    """The variables of a machine with the library of a chip's runtime, which nobody opens."""
    (tmp_path / RUNTIMES[vendor]).write_text("no library")
    return {"LD_LIBRARY_PATH": str(tmp_path)}


def test_the_doctor_gives_the_command(
    without_torch: Interpreter, vendor: str, machine: dict[str, str]
) -> None:
    found = without_torch.flagos("doctor", "--json", "--no-canaries", **machine).json["checks"]
    checks = {check["name"]: check for check in found}
    report = checks[f"vendor {vendor}"]
    assert report["status"] == "warn"
    assert report["fix"] == f"pip install 'flagos[{vendor}]'"
    assert (
        RUNTIMES[vendor] in report["detail"]
        and f"flagos-{vendor} is not installed" in report["detail"]
    )
    others = {name for name in checks if name.startswith("vendor ")} - {f"vendor {vendor}"}
    assert others == {"vendor cuda", "vendor host"}


def test_devices_list_it(without_torch: Interpreter, vendor: str, machine: dict[str, str]) -> None:
    listed = without_torch.flagos("devices", **machine)
    line = next(line for line in listed.out.splitlines() if line.startswith(vendor))
    assert f"pip install 'flagos[{vendor}]'" in line
    assert "vendor  manifest" not in listed.out


@pytest.mark.parametrize("name", ["ascend", "npu", "metax"])
def test_the_first_error_names_the_distribution(without_torch: Interpreter, name: str) -> None:
    distribution = {"npu": "ascend"}.get(name, name)
    result = without_torch.flagos("devices", FLAGOS_VENDOR=name)
    assert result.status == 1
    assert f"vendor `{distribution}` cannot be used" in result.err
    assert f"pip install 'flagos[{distribution}]'" in result.err


def test_the_checklist_names_the_distribution(
    without_torch: Interpreter, vendor: str, machine: dict[str, str]
) -> None:
    result = without_torch.flagos("vendor", "check", vendor, **machine)
    assert result.status == 2
    assert f"pip install 'flagos[{vendor}]'" in result.err


def test_a_machine_without_the_chip_is_told_nothing(without_torch: Interpreter) -> None:
    assert "pip install" not in without_torch.flagos("devices").out


def test_the_frameworks_own_vendor_is_no_silent_fallback(
    without_torch: Interpreter, vendor: str, machine: dict[str, str]
) -> None:
    """As where MetaX's torch computes, and flagos' part is missing."""
    program = f"from flagos import _core; _core.prefer_vendor({vendor!r}); _core.init()"
    result = without_torch.program(program, **machine)
    assert f"serves devices of vendor `{vendor}`" in result.err
    assert f"pip install 'flagos[{vendor}]'" in result.err
    # Without the chip there is nothing to serve.
    assert without_torch.program(program).status == 0
    result = without_torch.program(program, FLAGOS_VENDOR="host", **machine)
    assert result.status == 0, result.err


def test_a_name_is_one(without_torch: Interpreter) -> None:
    result = without_torch.program("from flagos import _core; _core.prefer_vendor('no name')")
    assert "`no name` is no name of a vendor" in result.err

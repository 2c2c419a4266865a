"""Vendors that manifests tell of: found in `FLAGOS_VENDOR_PATH` and in installed packages, chosen, or told why not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import flagos
from flagos import _core
from python.tests.interpreters import FakePackages, Interpreter

CORE = Path(__file__).parents[2] / "core"

CRASHES = """
#include <signal.h>
__attribute__((constructor)) static void begin(void) { raise(SIGSEGV); }
"""


def compiled(library: Path, *sources: Path) -> None:
    """Compiles a library, as a user of the headers would."""
    options = ["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", f"-I{CORE / 'include'}"]
    command = ["cc", *options, "-o", str(library), *map(str, sources), "-lm"]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example chip and its manifest."""
    folder = tmp_path_factory.mktemp("chip")
    example = CORE / "examples" / "vendor"
    compiled(folder / "libflagos_example.so", *sorted(example.glob("*.c")))
    shutil.copy(example / "example.toml", folder)
    return folder


def packaged(fakes: FakePackages, chip: Path, value: str, code: str = "") -> dict[str, str]:
    """The variables of an interpreter with a package that contributes the example chip as ``value``."""
    fakes.package("my_chip", {"__init__.py": code})
    for file in chip.iterdir():
        shutil.copy(file, fakes.folder / "my_chip")
    fakes.distribution("my-chip", "1.0", f"[flagos.vendors]\nexample = {value}\n")
    return {"PYTHONPATH": str(fakes.folder)}


def test_the_example_chip_is_chosen_by_its_name(interpreter: Interpreter, chip: Path) -> None:
    for name in ("example", "chip"):
        path = {"FLAGOS_VENDOR_PATH": str(chip), "FLAGOS_VENDOR": name}
        report = interpreter.flagos("devices", "--json", EXAMPLE_CHIP_DEVICES="3", **path)
        assert [device["vendor"] for device in report.json["devices"]] == ["example"] * 3
        (line,) = (vendor for vendor in report.json["vendors"] if vendor["name"] == "example")
        assert line["source"] == str(chip / "example.toml")
        assert (line["devices"], line["chosen"]) == (3, True)
    text = interpreter.flagos("devices", **path).out
    assert f"\nexample  {chip / 'example.toml'}\n" in text


def test_its_description_is_the_librarys(interpreter: Interpreter, chip: Path) -> None:
    program = (
        "from flagos import _core; info = _core.vendor_info()\n"
        "print(info['name'], info['aliases'], info['serving'], info['dlpack_device_type'])"
    )
    variables = {"FLAGOS_VENDOR_PATH": str(chip / "example.toml"), "FLAGOS_VENDOR": "chip"}
    assert interpreter.program(program, **variables).out == "example ['chip'] library 12\n"


#: Registers a kernel of the example chip and one of the CPU for an operator, whose winner it then prints, with what is
#: loaded by then.
KERNELS = """
from flagos import _core
_core.register_impl("own::op", "chip.op", "vendor", vendor="example")
_core.register_impl("own::op", "cpu.op", "reference", backend="cpu")
%s
print(_core.explain("own::op")["winner"])
print("libflagos_example" in open("/proc/self/maps").read())
"""


@pytest.mark.parametrize("route", ["vendor:chip", "vendor:example|cpu", "chip", "example"])
def test_its_names_are_words_of_the_configuration(
    interpreter: Interpreter, fakes: FakePackages, chip: Path, route: str
) -> None:
    path = {"FLAGOS_VENDOR_PATH": str(chip)}
    for code, variables in [
        ("", {"FLAGOS_OP_own__op": route, **path}),
        ("", {"FLAGOS_OP_own__op": route, **packaged(fakes, chip, "my_chip")}),
        (f"_core.set_route('own::op', {route!r})", path),
        (f"_core.push_context({{'own::op': {route!r}}})", path),
    ]:
        result = interpreter.program(KERNELS % code, **variables)
        assert result.out == "chip.op\nFalse\n", result.err


def test_an_alias_names_the_vendor_in_every_setting(
    interpreter: Interpreter, chip: Path, tmp_path: Path
) -> None:
    toml = tmp_path / "flagos.toml"
    toml.write_text("policy.deny_vendors = ['chip']\n")
    variables = {"FLAGOS_VENDOR_PATH": str(chip), "FLAGOS_CONFIG": str(toml)}
    assert interpreter.program(KERNELS % "", **variables).out == "cpu.op\nFalse\n"
    code = "from flagos._core import te; print(te.vendor('Chip'), te.token('vendor:CHIP'))"
    result = interpreter.program(code, FLAGOS_VENDOR_PATH=str(chip))
    assert result.out == "example vendor:example\n", result.err


def test_a_wrong_name_is_told_with_the_nearest(interpreter: Interpreter, chip: Path) -> None:
    path = {"FLAGOS_VENDOR_PATH": str(chip)}
    for route in ("vendor:exmaple", "exmaple"):
        result = interpreter.program(KERNELS % "", FLAGOS_OP_own__op=route, **path)
        assert "did you mean `example`?" in result.err
    result = interpreter.flagos("devices", FLAGOS_VENDOR="exmaple", **path)
    assert "there is no vendor `exmaple`; did you mean `example`? available here: " in result.err


def test_exactly_these_vendors_are_linked() -> None:
    names = sorted(vendor["name"] for vendor in _core.built_in_vendors())
    assert names == ["cuda", "host"]


def test_the_doctor_looks_for_what_the_vendors_name(interpreter: Interpreter, chip: Path) -> None:
    names = {
        library["soname"] for vendor in _core.built_in_vendors() for library in vendor["libraries"]
    }
    for variables in ({}, {"FLAGOS_VENDOR_PATH": str(chip), "FLAGOS_VENDOR": "example"}):
        checks = interpreter.flagos("doctor", "--json", "--no-canaries", **variables).json["checks"]
        libraries = {check["name"] for check in checks if check["name"].startswith("library ")}
        assert libraries == {f"library {name}" for name in (*names, "libflagcx.so")}


def test_listing_tries_nothing(interpreter: Interpreter, chip: Path) -> None:
    program = (
        "import flagos\n"
        "lines = {line['name']: line for line in flagos.vendors()}\n"
        "print(lines['example']['devices'], lines['host']['chosen'])\n"
        "print('libflagos_example' in open('/proc/self/maps').read())"
    )
    result = interpreter.program(program, FLAGOS_VENDOR_PATH=str(chip))
    assert result.out == "None True\nFalse\n", result.err


def test_a_package_contributes_a_manifest_without_being_imported(
    interpreter: Interpreter, fakes: FakePackages, chip: Path
) -> None:
    path = packaged(fakes, chip, "my_chip", "raise RuntimeError('imported')")
    program = (
        "import sys, flagos\n"
        "print(flagos.devices()[0]['vendor'], 'my_chip' in sys.modules)\n"
        "print([line['source'] for line in flagos.vendors() if line['name'] == 'example'])"
    )
    result = interpreter.program(program, FLAGOS_VENDOR="example", **path)
    manifest = str(fakes.folder / "my_chip" / "example.toml")
    assert result.out == f"example False\n{[manifest]}\n", result.err


def test_a_function_of_a_package_may_give_the_path(
    interpreter: Interpreter, fakes: FakePackages, chip: Path
) -> None:
    # It asks for the vendor itself, as an import of an adapter would.
    code = (
        "from pathlib import Path\n"
        "def manifest():\n"
        "    from flagos import _core\n"
        "    _core.vendors()\n"
        "    return Path(__file__).with_name('example.toml')\n"
    )
    path = packaged(fakes, chip, "my_chip:manifest", code)
    result = interpreter.flagos("devices", "--json", FLAGOS_VENDOR="example", **path)
    assert result.json["devices"][0]["vendor"] == "example", result.err


@pytest.mark.parametrize(
    ("value", "code", "says"),
    [
        ("no_such_package", "", "ModuleNotFoundError: there is no package no_such_package"),
        ("my_chip.lib", "", "FileNotFoundError: there is no example.toml in the package my_chip.lib"),
        ("my_chip:manifest", "def manifest(): return 7", "TypeError: my_chip:manifest returned 7"),
        ("my_chip:manifest", "def manifest(): 1 / 0", "ZeroDivisionError: division by zero"),
    ],
)  # fmt: skip
def test_a_contribution_that_fails_is_told(
    interpreter: Interpreter, fakes: FakePackages, chip: Path, value: str, code: str, says: str
) -> None:
    path = packaged(fakes, chip, value, code)
    (line,) = (
        vendor
        for vendor in interpreter.flagos("devices", "--json", **path).json["vendors"]
        if vendor["name"] == "example"
    )
    assert line["reason"].startswith(says) and line["devices"] == 0
    assert line["source"] == "entry point example of my-chip"
    result = interpreter.flagos("devices", FLAGOS_VENDOR="example", **path)
    assert result.status == 1 and f"vendor `example` cannot be used: {says}" in result.err


def test_a_library_that_crashes_is_skipped_or_told(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "crashing.c").write_text(CRASHES)
    compiled(tmp_path / "libcrashing.so", tmp_path / "crashing.c")
    (tmp_path / "crashing.toml").write_text(
        "name = 'crashing'\nlibrary = 'libcrashing.so'\ninterface = '1.0'\nrank = 1000\n"
        f"device_files = ['{tmp_path}/crashing.toml']\n"
    )
    path = {"FLAGOS_VENDOR_PATH": str(tmp_path)}
    report = interpreter.flagos("devices", "--json", **path).json
    assert [device["vendor"] for device in report["devices"]] == ["host"]
    reasons = {line["name"]: line["reason"] for line in report["vendors"]}
    assert reasons["crashing"] == "ended by SIGSEGV in its probe"
    doctor = (
        "from flagos import _core\n"
        "from flagos.doctor.configuration import vendors\n"
        "_core.devices()\n"
        "print([each.detail for each in vendors() if each.name == 'vendor crashing'])"
    )
    assert "ended by SIGSEGV in its probe" in interpreter.program(doctor, **path).out

    named = interpreter.flagos("devices", FLAGOS_VENDOR="crashing", **path)
    assert named.status == 1
    assert "vendor `crashing` cannot be used: ended by SIGSEGV in its probe" in named.err


def test_a_path_without_manifests_is_an_error(interpreter: Interpreter, tmp_path: Path) -> None:
    result = interpreter.flagos("devices", FLAGOS_VENDOR_PATH=str(tmp_path / "absent"))
    assert result.status == 1
    assert f"FLAGOS_VENDOR_PATH: {tmp_path / 'absent'} does not exist" in result.err


def test_the_folder_beside_the_native_module_is_searched(
    interpreter: Interpreter, chip: Path
) -> None:
    program = (
        "from flagos import _core, vendor_manifests\n"
        "folders = []\n"
        "vendor_manifests._core = type('Core', (), dict(find_vendors_in=folders.append))\n"
        "vendor_manifests.contributions = lambda group: []\n"
        "vendor_manifests.hand_over()\n"
        "print(folders)\n"
        f"_core.find_vendors_in({str(chip)!r})\n"
        "print(_core.devices()[0]['vendor'])"
    )
    result = interpreter.program(program, FLAGOS_VENDOR="example")
    folder = Path(flagos.__file__).with_name("vendors")
    assert result.out == f"{[str(folder)]}\nexample\n", result.err

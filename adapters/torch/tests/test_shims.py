"""Which native code serves which torch, and how it comes into a wheel."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from torch_fl import _C, _shims
from torch_fl_cli import shims

ADAPTER = Path(__file__).parents[1]


def folder_with(folder: Path, *minors: str) -> Path:
    for minor in minors:
        (folder / f"torch_{minor.replace('.', '_')}.so").write_bytes(b"")
    return folder


def test_the_shim_of_this_torch_is_open() -> None:
    minor = _shims.minor_of(torch.__version__)
    assert _shims.minor_of(_C.torch_version()) == minor
    opened = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    assert str(_shims.present()[minor]) in opened


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cu130", "2.13.3", "2.13.0a0+gitabc"])
def test_any_patch_release_of_a_line_will_do(tmp_path: Path, version: str) -> None:
    folder = folder_with(tmp_path, "2.9", "2.13", "2.15")
    assert _shims.shim_for(version, folder) == tmp_path / "torch_2_13.so"


@pytest.mark.parametrize("version", ["2.10.1", "2.1.1", "3.13.0", "2.16.0+cpu"])
def test_another_line_is_refused_with_those_that_are_there(tmp_path: Path, version: str) -> None:
    folder = folder_with(tmp_path, "2.15", "2.9", "2.13")
    with pytest.raises(ImportError) as refused:
        _shims.shim_for(version, folder)
    text = str(refused.value)
    assert f"torch {version} is installed" in text and "torch 2.9, 2.13 and 2.15;" in text
    assert "pip install 'torch==2.15.*'" in text


def test_a_wheel_without_shims_says_so(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"no native code for any torch: .*torch_\*\.so"):
        _shims.shim_for("2.11.0", tmp_path)


def test_a_second_shim_is_refused() -> None:
    with pytest.raises(ImportError, match="is open already"):
        _C.open_shim("/nowhere/torch_2_15.so")
    _C.open_shim(str(_shims.shim_for(torch.__version__)))  # the same again is none


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("_C.registered_ops()", "RuntimeError no shim is open"),
        (
            "_C.open_shim('/nowhere/torch_2_15.so')",
            "ImportError /nowhere/torch_2_15.so cannot be opened",
        ),
        ("_C.open_shim(_C.__file__)", "ImportError"),
    ],
)
def test_the_extension_is_opened_without_torch_and_does_nothing(call: str, says: str) -> None:
    script = f"""
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("torch_fl._C", {_C.__file__!r})
_C = importlib.util.module_from_spec(spec); spec.loader.exec_module(_C)
assert "torch" not in sys.modules
try:
    {call}
except Exception as error:
    print(type(error).__name__, error)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.startswith(says)
    if says == "ImportError":
        assert "is no shim" in out.stdout and "flagos_shim_register" in out.stdout


def test_the_command_finds_the_same_without_torch() -> None:
    script = (
        "import sys; from torch_fl_cli import shims; print([*shims.shims_present().items()]);"
        "assert 'torch' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str([*_shims.present().items()])
    assert shims.minor_of("2.14.1+cu130") == _shims.minor_of("2.14.1+cu130") == "2.14"


def test_flagos_devices_tells_which_shim(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flagos", "devices"]
    report = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, check=True).stdout
    )
    name = f"torch_{_shims.minor_of(torch.__version__).replace('.', '_')}.so"
    (framework,) = report["frameworks"]
    assert framework["name"].split("+")[0] == f"torch {torch.__version__}".split("+")[0]
    assert framework["native"] == f"torch_fl/_shims/{name}" and framework["reason"] is None
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert f"torch_fl/_shims/{name}" in text


def test_shims_are_added_to_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "torch_fl-0.1.0-cp310-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        out.writestr("torch_fl/__init__.py", "")
        out.writestr("torch_fl/_shims/torch_2_11.so", "old")
        out.writestr(
            "torch_fl-0.1.0.dist-info/RECORD",
            "torch_fl/__init__.py,sha256=x,0\n"
            "torch_fl/_shims/torch_2_11.so,sha256=x,3\ntorch_fl-0.1.0.dist-info/RECORD,,\n",
        )
    shim = tmp_path / "torch_2_13.so"
    shim.write_bytes(b"new")
    add = [sys.executable, str(ADAPTER / "add_shims.py"), str(wheel)]
    subprocess.run([*add, str(shim)], check=True)
    with zipfile.ZipFile(wheel) as made:
        assert made.testzip() is None
        record = list(
            csv.reader(io.StringIO(made.read("torch_fl-0.1.0.dist-info/RECORD").decode()))
        )
        assert {row[0] for row in record} == set(made.namelist())
        assert "torch_fl/_shims/torch_2_11.so" not in made.namelist()
        assert made.read("torch_fl/_shims/torch_2_13.so") == b"new"
    before = wheel.read_bytes()
    failed = subprocess.run([*add, str(tmp_path / "missing.so")], capture_output=True, check=False)
    assert failed.returncode != 0 and wheel.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".new"] == []

"""Plugins by entry point and by variable, the two examples, and log lines."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.te.tests.processes import EXAMPLES, run

LINE = r"^\[TE-FL manager\.py:\d+ INFO\] "
CALL = """
    import torch
    from te_fl import core
    m = core.get_manager()
    m.call("rmsnorm_fwd", torch.randn(2, 8), torch.ones(8), 1e-5)
    print(m.get_selected_impl_id("rmsnorm_fwd"), core.get_discovered_plugin())
"""


def plugin(folder: Path, name: str, body: str, entry: str | None = None) -> Path:
    """A module, and with ``entry`` the metadata of an installed distribution that names it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(body)
    if entry is not None:
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[te_fl.plugin]\n{name} = {entry}\n")
    return folder


def body(impl_id: str, function: str = "register", extra: str = "") -> str:
    return f"""
from te_fl.core import BackendImplKind, OpImpl
def {function}(registry):
    registry.register_impl(OpImpl("rmsnorm_fwd", "{impl_id}", BackendImplKind.VENDOR,
                                  lambda *a, **k: (a[0], None), vendor="acme", priority=7))
    {extra}
"""


def test_the_example_in_the_program_prints_the_documented_lines() -> None:
    out = run(EXAMPLES / "intree.py")
    ids = r"\['default\.flagos_rs', 'reference\.torch', 'vendor\.mybackend'\]$"
    listed = LINE + "Registered impl_ids: " + ids
    used = LINE + r"Op 'rmsnorm_fwd' using 'vendor\.mybackend' \(kind=vendor, vendor=mybackend\)$"
    assert re.search(listed, out, re.MULTILINE) and re.search(used, out, re.MULTILINE)
    assert ">>> my_rmsnorm_fwd called" in out and "output (2, 4, 8)" in out


OUTTREE = LINE + r"Op 'rmsnorm_fwd' using 'vendor\.myvendor' \(kind=vendor, vendor=myvendor\)$"


def test_the_example_of_its_own_package_by_the_name_of_the_module() -> None:
    folder = EXAMPLES / "my_vendor_plugin"
    variables = {"TE_FL_PLUGIN_MODULES": "my_vendor_plugin", "TE_FL_PREFER": "vendor"}
    out = run(EXAMPLES / "outtree.py", folder, **variables)
    assert re.search(OUTTREE, out, re.MULTILINE), out
    assert "Registered plugin from env_module:my_vendor_plugin" in out


def test_the_example_of_its_own_package_installed(tmp_path: Path) -> None:
    source = shutil.copytree(EXAMPLES / "my_vendor_plugin", tmp_path / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(tmp_path / "site"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot build a package here: {done.stderr.strip().splitlines()[-1:]}")
    out = run(EXAMPLES / "outtree.py", tmp_path / "site", TE_FL_PREFER="vendor")
    assert re.search(OUTTREE, out, re.MULTILINE), out
    unused = run(EXAMPLES / "outtree.py", tmp_path / "site")
    assert "using 'default.flagos_rs'" in unused and "vendor.myvendor" in unused


def test_builtins_then_entry_points_then_the_variable(tmp_path: Path) -> None:
    folder = plugin(tmp_path, "ambient", body("vendor.ambient"), "ambient:register")
    plugin(tmp_path, "asked", body("vendor.zz_asked", "te_fl_register"))
    out = run(CALL, folder, TE_FL_PLUGIN_MODULES="asked", TE_FL_PREFER="vendor")
    assert "vendor.zz_asked" in out
    # Our own entry point stands among them where the wheel is installed.
    asked = out.index("('asked', 'env_module', True)")
    assert out.index("('ambient', 'entry_point', True)") < asked


def test_an_installed_plugin_that_raises_is_passed_over_and_taken_back(tmp_path: Path) -> None:
    raising = body("vendor.zz", extra="raise RuntimeError('no driver')")
    folder = plugin(tmp_path, "a_raising", raising, "a_raising:register")
    plugin(tmp_path, "good", body("vendor.good"), "good:register")
    out = run(CALL, folder, TE_FL_PREFER="vendor")
    assert "Error calling plugin entry_point:a_raising: no driver" in out
    assert "vendor.good [" in out and "'vendor.zz'" not in out


@pytest.mark.parametrize(
    ("source", "report"),
    [
        (body("vendor.zz", extra="raise RuntimeError('no driver')"), "RuntimeError: no driver"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("x = 1", "has neither te_fl_register\\(registry\\) nor register\\(registry\\)"),
    ],
)
def test_a_plugin_that_was_asked_for_must_work(tmp_path: Path, source: str, report: str) -> None:
    folder = plugin(tmp_path, "asked", source)
    out = run(CALL, folder, fails=True, TE_FL_PLUGIN_MODULES="asked")
    assert re.search(f"ConfigError: the plugin asked, named by TE_FL_PLUGIN_MODULES.*{report}", out)


def test_the_level_of_the_log_lines() -> None:
    assert "[TE-FL" not in run(CALL, TEFL_LOG_LEVEL="warning")
    # Without a call, torch is not imported.
    out = run("from te_fl.core import get_logger; get_logger()", fails=True, TEFL_LOG_LEVEL="INF0")
    assert "`INF0` is not a valid value of TEFL_LOG_LEVEL; did you mean `INFO`?" in out


def test_a_misspelt_variable_is_told() -> None:
    out = run(CALL, TE_FL_PREFFER="vendor")
    report = "TE_FL_PREFFER is not a variable flagos knows; did you mean `TE_FL_PREFER`?"
    assert "WARNING] " + report in out


def test_a_switch_is_told() -> None:
    out = run(
        """
        from te_fl.core import *
        m = OpManager()
        m.registry.register_impl(OpImpl("x", "a", BackendImplKind.DEFAULT, lambda: 1))
        m.call("x"), m.call("x")
        m.registry.register_impl(OpImpl("x", "b", BackendImplKind.DEFAULT, lambda: 2))
        m.call("x")
        """
    )
    assert out.count("Op 'x' using 'a'") == 1
    assert "Op 'x' switched from 'a' to 'b' (kind=flagos, vendor=None)" in out

"""Versions of FlagGems: those that flagos knows, and any other, whose calls are verified before they are served."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from adapters.torch.tests.conftest import Run
from torch_fl import flaggems_versions
from torch_fl.flaggems import package

KNOWN = package.version() in flaggems_versions.known()

SERVED = """
import warnings

import torch

import torch_fl

x = torch.linspace(-2, 2, 64, device="flagos").reshape(8, 8)
host = x.cpu()
with warnings.catch_warnings(record=True) as caught, torch_fl.route({"abs": "flaggems", "neg": "flaggems"}):
    warnings.simplefilter("always")
    for _ in range(2):
        assert torch.equal(x.abs().cpu(), host.abs())
        assert torch.equal((-x).cpu(), -host)
        assert torch.equal((-x.half()).cpu(), -host.half())
print([str(one.message).partition(":")[0] for one in caught if "knows" in str(one.message)])
print(torch_fl.explain("aten::neg"))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the FlagGems that is tested, whose `abs` is wrong."""
    source = package.folder()
    assert source is not None
    copied = tmp_path / "src" / "flag_gems"
    shutil.copytree(source, copied, ignore=shutil.ignore_patterns("__pycache__"))
    kernel = copied / "ops" / "abs.py"
    text = kernel.read_text()
    assert "tl.abs(x)" in text
    kernel.write_text(text.replace("tl.abs(x)", "tl.abs(x) + 1"))
    return copied


@pytest.mark.skipif(not KNOWN, reason="this FlagGems is none that flagos knows")
def test_sources_are_recognised_to_the_last_byte(checkout: Path) -> None:
    original = package.folder()
    assert original is not None
    assert flaggems_versions.of_checkout(original) == package.version()
    assert flaggems_versions.of_checkout(checkout).startswith("source-")
    right = (checkout / "ops" / "abs.py").read_text().replace("tl.abs(x) + 1", "tl.abs(x)")
    (checkout / "ops" / "abs.py").write_text(right)
    flaggems_versions.of_checkout.cache_clear()
    assert flaggems_versions.of_checkout(checkout) == package.version()


def test_every_known_version_says_what_native_launches_stand_in_for() -> None:
    assert list(flaggems_versions.known()) == ["5.0.2", "5.3.4"]
    for about in flaggems_versions.known().values():
        assert set(about.launcher) == {"LibEntry.__init__", "LibEntry.key", "LibEntry.run"}


def test_an_unknown_version_serves_what_another_process_verified(
    checkout: Path, tmp_path: Path, run_python: Run
) -> None:
    told = run_python(
        SERVED,
        fresh=True,
        FLAGGEMS_SOURCE_DIR=str(checkout),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    warned, explained = told.stdout.split("\n", 1)
    assert warned == str(
        [
            f"this checkout of FlagGems is none of those that flagos knows ({', '.join(flaggems_versions.known())})"
        ]
    )
    assert "UNTESTED" in explained and "another process verifies a call" in explained
    (found,) = (tmp_path / "cache" / "flagos").glob("on-use.*source-*.json")
    overloads = json.loads(found.read_text())["overloads"]
    right = {name.partition(" ")[0]: one["right"] for name, one in overloads.items()}
    assert right == {"abs": False, "neg": True}
    assert len(overloads) == 3, "float16 is a kind of its own"
    assert "tried at these sizes, it is FAILED" in str(overloads)


def test_without_the_tools_an_unknown_version_serves_nothing(
    checkout: Path, run_python: Run
) -> None:
    hidden = "from torch_fl import tools\nimport flagos.adapters\nflagos.adapters.contributions = lambda group: []\n"
    told = run_python(hidden + SERVED, fresh=True, FLAGGEMS_SOURCE_DIR=str(checkout))
    assert "pip install torch-fl-tools" in told.stdout + told.stderr


def test_kernels_that_flagtree_compiles_are_not_those_that_triton_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flaggems_versions.why_unknown("5.0.2") is None
    metadata = tmp_path / "flagtree-0.4.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: flagtree\nVersion: 0.4.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    flaggems_versions.compiler.cache_clear()
    try:
        assert flaggems_versions.compiler() == "flagtree 0.4.0"
        assert "compiled by flagtree 0.4.0" in str(flaggems_versions.why_unknown("5.0.2"))
    finally:
        monkeypatch.undo()
        flaggems_versions.compiler.cache_clear()
    assert (
        os.environ.get("TRITON_INTERPRET") == "1" and flaggems_versions.why_unknown("5.0.2") is None
    )

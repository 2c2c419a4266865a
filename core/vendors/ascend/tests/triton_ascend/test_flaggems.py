"""FlagGems' operators on the vendor: chosen by verdicts, of which none is shipped.

FlagGems itself needs a compiler of kernels, so a small package with a table like its own stands for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from core.vendors.ascend.tests.triton_ascend import wheel
from core.vendors.ascend.tests.triton_ascend.wheel import HERE, Chip
from torch_fl import flaggems_versions

# As FlagGems: a table in its text, and functions that ask `torch.npu` which device is current.
PACKAGE = """
import os
import torch
assert os.environ["GEMS_VENDOR"] == "ascend"
device = torch.npu
calls = []
def silu(x):
    calls.append("silu")
    assert device.current_device() == x.device.index
    return x * torch.sigmoid(x)
def silu_(x):
    calls.append("silu_")
    return x * torch.sigmoid(x)   # another tensor, whose values are the result
def wrong(x):
    calls.append("wrong")
    return x
_FULL_CONFIG = (("silu", silu), ("silu_", silu_), ("exp", wrong))
"""


@pytest.fixture
def chip(toolkit: Path, tmp_path: Path) -> Chip:
    """The chip with torch itself, a double of Triton, and the small package."""
    if reason := wheel.why_no_chip():
        pytest.skip(reason)
    made = Chip(tmp_path / "chip", toolkit, HERE / "newer", sys.executable, real=True)
    package = made.packages / "flag_gems"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    # A known version: another process would verify the kernels of an unknown one first.
    *_, version = flaggems_versions.known()
    metadata = made.packages / f"flag_gems-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: flag_gems\nVersion: {version}\n")
    return made


def run(chip: Chip, program: str, policy: str, **variables: str) -> None:
    chip.run(
        """
import torch_fl, flag_gems_calls
x = torch.linspace(-3, 3, 12)
there = x.to("flagos")
def explained(name):
    return flag_gems_calls.text(torch_fl.explain(f"aten::{name}"))
"""
        + program,
        FLAGOS_FLAGGEMS=policy,
        XDG_DATA_HOME=str(chip.folder),
        **variables,
    )


@pytest.fixture(autouse=True)
def helper(chip: Chip) -> None:
    (chip.packages / "flag_gems_calls.py").write_text(
        "import sys\n"
        "text = str\n"
        "def calls():\n"
        "    found = sys.modules.get('flag_gems')\n"
        "    return [] if found is None else found.calls\n"
    )


@pytest.mark.parametrize("policy", ["verified", "auto"])
def test_none_serves_unverified_and_the_plan_says_so(chip: Chip, policy: str) -> None:
    run(
        chip,
        """
for name in ("silu", "exp"):
    said = explained(name)
    assert "flaggems" not in said.splitlines()[0] and "not verified on ascend: run `flagos verify`" in said, said
torch.testing.assert_close(torch.nn.functional.silu(there).cpu(), torch.nn.functional.silu(x))
assert "flag_gems" not in sys.modules and not torch_fl.is_flaggems_enabled()
""",
        policy,
    )


def test_a_route_takes_one_all_the_same(chip: Chip) -> None:
    """Results of in-place functions go into the argument, and gradients are torch's."""
    run(
        chip,
        """
torch.testing.assert_close(torch.nn.functional.silu(there).cpu(), torch.nn.functional.silu(x))
with torch_fl.route({"silu": "flaggems", "silu_": "flaggems"}):
    torch.testing.assert_close(torch.nn.functional.silu(there).cpu(), torch.nn.functional.silu(x))
    copy = there.clone()
    assert torch.nn.functional.silu(copy, inplace=True) is copy
    torch.testing.assert_close(copy.cpu(), torch.nn.functional.silu(x))
    leaf = there.clone().requires_grad_()
    torch.nn.functional.silu(leaf).sum().backward()
    here = x.clone().requires_grad_()
    torch.nn.functional.silu(here).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), here.grad)
assert flag_gems_calls.calls() == ["silu", "silu_", "silu"], flag_gems_calls.calls()
torch.nn.functional.silu(there)
assert len(flag_gems_calls.calls()) == 3
""",
        "off",
    )


def test_verdicts_of_this_machine_choose(chip: Chip) -> None:
    """`flagos verify` keeps them under the vendor's name. A verified function serves within its conditions alone."""
    entries = {
        "silu": {
            "verdict": "STRICT",
            "cases": 3,
            "first": "sample 1: empty",
            "only": ["nonempty", "contiguous"],
        },
        "exp": {"verdict": "FAILED", "first": "sample 0: not close"},
    }
    program = """
from torch_fl.flaggems import package, tables
path = tables.folder() / tables.file_name("verdicts", tables.chip(), package.version())
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(os.environ["TABLE"])
"""
    table = json.dumps({"overloads": entries})
    run(chip, program, "off", TABLE=table)
    run(
        chip,
        """
assert "flaggems" in explained("silu").splitlines()[0], explained("silu")
assert "verified to be wrong on ascend: sample 0: not close" in explained("exp"), explained("exp")
torch.testing.assert_close(torch.nn.functional.silu(there).cpu(), torch.nn.functional.silu(x))
assert flag_gems_calls.calls() == ["silu"]
torch_fl.reset_counters()
torch.testing.assert_close(torch.nn.functional.silu(there[::2]).cpu(), torch.nn.functional.silu(x[::2]))
assert torch.nn.functional.silu(there[:0]).shape == (0,)
assert flag_gems_calls.calls() == ["silu"], "served outside of its conditions"
torch.testing.assert_close(there.exp().cpu(), x.exp())
assert flag_gems_calls.calls() == ["silu"]
""",
        "verified",
    )

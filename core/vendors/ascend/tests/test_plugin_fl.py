"""What PyTorch-Plugin-FL routes to Ascend is computed there here, too, and its file is taken as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from core.vendors.ascend.tests.test_availability import run

pytestmark = pytest.mark.ascend

NAMES = [
    line
    for line in Path(__file__).with_name("plugin_fl.txt").read_text(encoding="utf-8").split("\n")
    if line and not line.startswith("#")
]
# CANN has no function for these, and torch computes them of no others.
BY_THE_CPU = {"_sample_dirichlet", "_standard_gamma", "binomial", "poisson"}
# Views and metadata, which compute nothing on dense tensors; torch's own composite of them and of `mm` and `bmm`.
NOTHING_TO_COMPUTE = {
    *("alias", "detach", "empty_like", "permute", "select.int", "split_with_sizes", "squeeze"),
    *("squeeze.dim", "transpose.int", "unbind.int", "unsqueeze", "matmul", "ones_like"),
}
# Operators of other devices, in whose place torch calls what the device has.
OF_OTHERS = {
    "_fused_rms_norm_backward",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
}


def test_every_operator_is_the_devices_or_torchs_composite() -> None:
    assert len(NAMES) == 371
    script = """
import torch
from torch_fl.aten.routing import explain
torch.zeros(1, device="flagos")
for name in NAMES:
    try:
        print(name, str(explain("aten::" + name)).splitlines()[0].rsplit(" -> ")[1])
    except Exception:
        print(name, "unknown")
"""
    told = run(f"NAMES = {NAMES}\n{script}")
    served = dict(re.findall(r"^([\w.]+) ([\w.]+)$", told, flags=re.MULTILINE))
    elsewhere = {name for name, by in served.items() if by not in ("ascend.native", "composite")}
    assert elsewhere == BY_THE_CPU | NOTHING_TO_COMPUTE | OF_OTHERS


def test_its_file_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "backends.conf"
    file.write_text("".join(f"{name} = ascend\n" for name in NAMES), encoding="utf-8")
    script = """
import torch
from torch_fl.aten.routing import explain
x = torch.ones(3, device="flagos")
print((x + 1).cpu().tolist())
print(explain("aten::add.Tensor"))
"""
    told = run(script, FLAGOS_BACKEND_CONFIG=str(file))
    assert told.startswith("[2.0, 2.0, 2.0]\n"), told
    assert "decided by:" in told and "backends.conf" in told, told


def test_a_name_that_nobody_has_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "backends.conf"
    file.write_text("add.Tensorr = ascend\n", encoding="utf-8")
    script = """
import torch
try:
    torch.ones(3, device="flagos")
except Exception as error:
    print(error)
"""
    assert "add.Tensor" in run(script, FLAGOS_BACKEND_CONFIG=str(file))

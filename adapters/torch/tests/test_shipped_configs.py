"""The files of `torch_fl/configs`, under the names that PyTorch-Plugin-FL gave them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torch_fl

FOLDER = Path(torch_fl.__file__).parent / "configs"

PROGRAM = """
import torch, torch_fl
import flagos
print(flagos.explain("aten::mm"))
print(torch.ones(2, device="flagos").add_(1).tolist())
"""


def test_every_file_is_in_the_package_and_is_followed(run_python):
    names = sorted(file.name for file in FOLDER.glob("*.conf"))
    assert "backends_cuda.conf" in names and "backends_flaggems.conf" in names
    # A file for another chip blocks operators that have no kernel of that chip here. All files name the CPU's kernels.
    vendor = torch.flagos.get_device_properties(0).vendor
    others = {"ascend", "cuda", "metax"} - {vendor} if vendor != "host" else set()
    for name in names:
        if any(other in name for other in others):
            continue
        out = run_python(PROGRAM, FLAGOS_BACKEND_CONFIG=str(FOLDER / name)).stdout
        assert "decided by: " in out and "configs/backends_" in out, out
        assert "[2.0, 2.0]" in out


@pytest.mark.host
def test_a_star_is_for_what_has_no_line(run_python, tmp_path):
    conf = tmp_path / "backends.conf"
    conf.write_text("tanh = cpu\n* = cuda\n")
    script = """
    import torch_fl
    print(torch_fl.explain("tanh"), torch_fl.explain("sin"))
    """
    out = run_python(script, FLAGOS_BACKEND_CONFIG=str(conf)).stdout
    assert "aten::tanh -> cpu.native" in out
    assert "aten::sin -> blocked" in out and f"{conf}:2" in out


@pytest.mark.host
def test_the_chip_is_named_as_there():
    assert torch_fl._build_accelerator() == ""


@pytest.mark.slow
@pytest.mark.parametrize("modules", ["torch", "torch, torch_fl", "torch, flagos, torch_fl"])
def test_retired_variables_are_reported_once(run_python, modules):
    script = f"import {modules}; x = torch.ones(2, device='flagos'); torch.flagos.init(); x.add_(1)"
    variables = {"FLAGOS_METAX_MM_HALF_MODE": "hgemm", "FLAGOS_METAX_COMPAT": "1"}
    lines = run_python(script, fresh=True, **variables).stderr.splitlines()
    report = [line for line in lines if "has no effect" in line]
    assert sorted(line.split()[0] for line in report) == sorted(variables), report

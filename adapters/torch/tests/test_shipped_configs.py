"""The files of `torch_fl/configs`, under the names that PyTorch-Plugin-FL gave them."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    for name in names:
        out = run_python(PROGRAM, FLAGOS_BACKEND_CONFIG=str(FOLDER / name)).stdout
        assert "decided by: " in out and "configs/backends_" in out, out
        assert "[2.0, 2.0]" in out


@pytest.mark.host
def test_a_star_is_for_what_has_no_line(run_python, tmp_path):
    conf = tmp_path / "backends.conf"
    conf.write_text("mm = cpu\n* = cuda\n")
    script = """
    import torch, flagos
    x = torch.ones(2, 2)
    try:
        x.to("flagos")  # a transfer is served by the device itself, and no operator that is routed
        torch.ones(2, device="flagos")
    except NotImplementedError as error:
        print(error)
    print((x.to("flagos") @ x.to("flagos")).device)
    """
    out = run_python(script, FLAGOS_BACKEND_CONFIG=str(conf)).stdout
    assert f"none of `cuda`, set by {conf}:2, is usable" in out
    assert "flagos:0" in out


@pytest.mark.host
def test_the_chip_is_named_as_there():
    assert torch_fl._build_accelerator() == ""

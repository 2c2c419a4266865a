"""`flagos bisect` finds a kernel of FlagGems that is wrong, among those that a program calls."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch, torch_fl
torch_fl.enable_flaggems(include=["silu", "mul.Tensor", "exp", "abs"])
torch.manual_seed(0)
x = torch.randn(4, 8).to("flagos").requires_grad_()
for step, scale in enumerate((0.1, 1.0)):
    y = torch.nn.functional.silu(torch.exp(x.abs()) * x * scale)
    torch.flagos.mark(f"y{step}", y)
"""
RIGHT = "y = tl.fdiv(x_fp32, (1.0 + tl.exp(-x_fp32)))"
# Kernels of a checkout that flagos does not know are verified by their first call, so the fault is one of later values.
WRONG = "y = tl.fdiv(x_fp32, (1.0 + tl.where(x_fp32 > 3, 0.25, 0.0) + tl.exp(-x_fp32)))"
SECONDS = 600


@pytest.mark.slow
def test_a_wrong_kernel_of_flaggems_is_found(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("flag_gems")
    assert spec is not None and spec.origin is not None
    source = tmp_path / "src" / "flag_gems"
    shutil.copytree(Path(spec.origin).parent, source)
    kernel = source / "ops" / "silu.py"
    text = kernel.read_text()
    assert text.count(RIGHT) == 1
    kernel.write_text(text.replace(RIGHT, WRONG))
    (tmp_path / "program.py").write_text(PROGRAM)
    flagos = Path(sys.executable).with_name("flagos")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "FLAGGEMS_SOURCE_DIR": str(source)}
    ended = subprocess.run(
        [
            str(flagos),
            "bisect",
            "--compare",
            "native",
            "--json",
            "--",
            sys.executable,
            "program.py",
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    report = json.loads(ended.stdout)
    assert report["operators"] == 4
    (cause,) = report["causes"]
    assert [(each["op"], each["impl"]) for each in cause["operators"]] == [
        ("aten::silu", "flaggems.silu")
    ]
    assert cause["call"]["kind"] == "differs"
    # The repro alone shows it, with this source; and with the right one it does not.
    repro = [sys.executable, str(tmp_path / cause["call"]["repro"])]
    kept = {
        k: v for k, v in environment.items() if k not in ("FLAGGEMS_SOURCE_DIR", "TRITON_INTERPRET")
    }
    for more, status in (({}, 1), ({"FLAGGEMS_SOURCE_DIR": str(Path(spec.origin).parent)}, 0)):
        done = subprocess.run(
            repro,
            env={**kept, **more},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr

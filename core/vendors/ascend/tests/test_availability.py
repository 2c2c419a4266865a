"""What a machine's CANN lacks is told by name: no CANN, an old one, operators that are not installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")


def run(script: str, **variables: str | None) -> str:
    """What a script prints in a process with these variables; None takes one away."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_cann_nothing_is_loaded_and_the_reason_is_told() -> None:
    script = """
import flagos, subprocess, sys
told = subprocess.run([sys.executable, "-m", "flagos", "devices"], capture_output=True, text=True).stdout
print(next(line for line in told.splitlines() if "ascend" in line))
import torch
torch.ones(2, device="flagos").sum().item()
loaded = open("/proc/self/maps").read()
print([name for name in ("ascend", "opapi", "nnopbase", "hccl") if f"lib{name}" in loaded])
"""
    told = run(script, FLAGOS_VENDOR=None, LD_PRELOAD=None, LD_LIBRARY_PATH=None)
    assert "this machine has no /dev/davinci[0-9]*" in told and told.endswith("[]\n"), told


@pytest.mark.ascend
def test_an_operator_that_is_missing_is_named_and_the_others_run() -> None:
    script = """
import torch
from torch_fl.aten.routing import counters, explain
x = torch.ones(3, device="flagos")
assert x.sin().cpu().tolist() == torch.ones(3).sin().tolist()
assert x.cos().cpu().tolist() == torch.ones(3).cos().tolist()
numbers = counters()
print(numbers["aten::sin"]["fallbacks"], numbers["aten::cos"]["fallbacks"])
print(explain("aten::sin"))
"""
    told = run(script, SIMULATED_ASCEND_HIDE="aclnnSin")
    assert told.startswith("1 0\n"), told
    assert "the CANN of this machine has no aclnnSin" in told, told


@pytest.mark.ascend
def test_an_old_cann_lacks_what_came_later() -> None:
    script = """
import torch, torch_fl
x = torch.randn(4, 4, device="flagos")
print(torch.allclose((x @ x).cpu(), x.cpu() @ x.cpu(), atol=1e-5))
"""
    assert run(script, SIMULATED_ASCEND_VERSION="8.1") == "True\n"


@pytest.mark.slow
@pytest.mark.ascend
def test_an_old_cann_is_told_operator_by_operator() -> None:
    """Each names the function it misses, takes another one that computes the same, and is right without any."""
    script = """
import torch
import torch.nn.functional as F
from torch_fl.aten.routing import counters, explain
x = torch.randn(1, 2, 5, 8, device="flagos")
results = []
for part in (x, x.cpu()):
    # The older function knows no factors, which say more than sizes: 13 rows are not 5 times 2.7.
    up = F.interpolate(part, scale_factor=2.7)
    weight = torch.nn.Parameter(part.clone())
    F.interpolate(weight, scale_factor=2.0, mode="bilinear").sum().backward()
    F.scaled_dot_product_attention(weight, part, part).sum().backward()
    torch.optim.AdamW([weight], fused=True).step()
    results.append([up.cpu(), weight.detach().cpu()])
torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
for name, numbers in counters().items():
    if numbers["fallbacks"]:
        why = [line.rsplit(" no ")[1] for line in str(explain(name)).splitlines() if ": unavailable: " in line]
        print(name, *why)
"""
    hidden = (
        *("UpsampleNearest2dV2", "UpsampleBilinear2dBackwardV2", "FlashAttentionScoreGrad"),
        *("ApplyAdamWV2", "Sin"),
    )
    told = run(
        script,
        SIMULATED_ASCEND_VERSION="8.1",
        SIMULATED_ASCEND_HIDE=",".join(f"aclnn{name}" for name in hidden),
    )
    attention = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    assert sorted(told.splitlines()) == [
        "aten::_fused_adamw_ aclnnApplyAdamWV2",
        f"{attention} aclnnFlashAttentionScoreGrad",
        "aten::upsample_nearest2d aclnnUpsampleNearest2dV2",
    ]


@pytest.mark.ascend
def test_without_the_operators_every_call_falls_back_with_the_reason() -> None:
    """As on a machine with the runtime of CANN alone."""
    script = """
import torch
from torch_fl.aten.routing import counters, explain
x = torch.ones(3, device="flagos")
print((x + 1).cpu().tolist(), counters()["aten::add.Tensor"]["fallbacks"])
print(explain("aten::add.Tensor"))
"""
    told = run(script, LD_LIBRARY_PATH=None)
    assert told.startswith("[2.0, 2.0, 2.0] 1\n"), told
    assert "libnnopbase.so" in told and "set_env.sh" in told, told


@pytest.mark.ascend
def test_a_wrong_number_of_executors_is_an_error() -> None:
    script = """
import torch
try:
    torch.ones(2, device="flagos")
except Exception as error:
    print(error)
"""
    told = run(script, FLAGOS_ASCEND_EXECUTORS="many")
    assert "FLAGOS_ASCEND_EXECUTORS is `many`" in told, told
    told = run(script, FLAGOS_ASCEND_EXECUTOR="9")
    assert "unknown variable `FLAGOS_ASCEND_EXECUTOR`" in told, told
    assert "FLAGOS_ASCEND_EXECUTORS" in told, told

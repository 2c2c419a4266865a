"""What goes wrong in PyTorch-Plugin-FL on Ascend, as its code reads, goes right here."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from core.vendors.ascend.tests import simulator

pytestmark = pytest.mark.ascend


def work() -> None:
    """Calls with every kind of object: scalars, lists of tensors, arrays, executors."""
    x = torch.randn(8, 8, device="flagos")
    y = (x + 1).clamp(-1, 1).sum(0) + torch.cat([x, x]).mean()
    torch._foreach_add_([x, y], 2.0)
    torch._foreach_mul([x, y], [1.5, 2.5])
    y[y > 0].sum().item()
    F.layer_norm(x, (8,)).pow(2).sum().item()


def run(script: str, **variables: str) -> str:
    """What a script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_object_is_released() -> None:
    """Without kept executors nothing is left; with them what is left does not grow."""
    script = (
        "from core.vendors.ascend.tests import simulator\n"
        "from core.vendors.ascend.tests.test_incumbent import work\n"
        "for _ in range(5): work()\n"
        "print(simulator.objects(), simulator.misuses())"
    )
    nothing = dict.fromkeys(simulator.KINDS, 0)
    assert run(script, FLAGOS_ASCEND_EXECUTORS="0") == f"{nothing} []\n"
    work()
    once = simulator.objects()
    assert once["executors"] > 0, "executors are kept unless the user says otherwise"
    for _ in range(5):
        work()
    assert simulator.objects() == once


def test_signatures_that_differ_have_executors_of_their_own() -> None:
    """A hash that is not compared whole would take one shape's executor for another's."""
    for size in range(1, 200):
        x = torch.arange(size, dtype=torch.float32, device="flagos")
        assert (x + size).cpu().tolist() == [float(i + size) for i in range(size)]
        assert (x * 2).sum().item() == size * (size - 1)


@pytest.mark.slow
def test_streams_do_not_share_a_workspace() -> None:
    """Two streams with work that is late: a workspace of both would mix their sums."""
    script = """
import torch
from core.vendors.ascend.tests import simulator
xs = [torch.full((64, 64), float(i + 1), device="flagos") for i in range(4)]
torch.flagos.synchronize()
streams = [torch.flagos.Stream() for _ in xs]
results = [[] for _ in xs]
for _ in range(12):
    for stream, x, kept in zip(streams, xs, results):
        with torch.flagos.stream(stream):
            kept.append((x @ x).softmax(-1).sum(0).cumsum(0)[-1])
torch.flagos.synchronize()
for kept, x in zip(results, xs):
    for value in kept:
        assert abs(value.item() - 64) < 1e-3, value
print(simulator.misuses())
"""
    assert run(script, SIMULATED_ASCEND_DELAY_US="300", SIMULATED_ASCEND_WORKSPACE="7") == "[]\n"


def test_events_tell_the_time_between_them() -> None:
    begin, end = torch.flagos.Event(enable_timing=True), torch.flagos.Event(enable_timing=True)
    begin.record()
    for _ in range(50):
        torch.randn(64, 64, device="flagos").exp()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 0


def test_each_device_has_a_default_stream_of_its_own() -> None:
    assert torch.flagos.device_count() >= 2
    handles = [torch.flagos.default_stream(index).native_handle for index in range(2)]
    assert all(handles), "the NULL stream is that of whichever context is current"
    assert handles[0] != handles[1]
    there = torch.ones(4, device="flagos:1")
    assert (there + 1).device == torch.device("flagos:1")
    assert (there + 1).sum().item() == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        pytest.param(
            "aclnnSin=1:507015",
            "RuntimeError: .*ACL_ERROR_RT_AICORE_EXCEPTION .507015.: E507015: .*aclnnSin failed .*restart the process",
            id="a kernel",
        ),
        pytest.param(
            "aclnnSinGetWorkspaceSize=1:361001",
            "RuntimeError: flagos: aten::sin: .*ACLNN_ERR_RUNTIME_ERROR .361001.: E361001: aclnnSin.*: a fault",
            id="a call",
        ),
        pytest.param(
            "aclnnSinGetWorkspaceSize=1:207001",
            "OutOfMemoryError: flagos: aten::sin: aclnnSin: ACL_ERROR_RT_MEMORY_ALLOCATION .207001.: E207001: ",
            id="memory",
        ),
        pytest.param(
            "aclnnSin=1:507010",
            "RuntimeError: .*ACL_ERROR_RT_LOST_HEARTBEAT .507010.: E507010: .*restart the process",
            id="the device",
        ),
    ],
)
def test_errors_have_the_vendors_text_and_the_operator(fault: str, told: str) -> None:
    script = """
import torch
x = torch.randn(4, 4, device="flagos")
try:
    x.sin().sum().item()
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}".replace(chr(10), " "))
"""
    said = run(script, SIMULATED_ASCEND_FAULT=fault)
    assert re.match(told, said), said


def test_attention_has_a_backward() -> None:
    shapes = {"query": (2, 4, 6, 8), "key": (2, 2, 6, 8), "value": (2, 2, 6, 8)}
    drawn = torch.Generator().manual_seed(0)
    given = {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}
    mask = torch.randn(2, 1, 6, 6, generator=drawn)
    for how in (
        {},
        {"is_causal": True},
        {"attn_mask": mask},
        {"attn_mask": mask > 0, "scale": 0.3},
    ):
        results = []
        for device in ("cpu", "flagos"):
            leaves = [part.clone().to(device).requires_grad_() for part in given.values()]
            on_device = {
                name: part.to(device) if isinstance(part, torch.Tensor) else part
                for name, part in how.items()
            }
            out = F.scaled_dot_product_attention(*leaves, enable_gqa=True, **on_device)
            out.square().sum().backward()
            results.append([out.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)])
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert simulator.calls("aclnnFlashAttentionScoreGrad") >= 4

"""Programs of CPU tensors that never name the device do what they do where flagos is not loaded."""

from __future__ import annotations

import pytest

CHECKPOINT = """
import torch
from torch.utils.checkpoint import checkpoint
x = torch.ones(8, requires_grad=True)
f = torch.compile(lambda t: t * 5, backend="eager")
checkpoint(f, x, use_reentrant=False).sum().backward()
print(x.grad.tolist())
"""

PROFILE = """
import torch
with torch.profiler.profile() as profile:
    torch.ones(2) * 2
print(any(event.key == "aten::mul" for event in profile.key_averages()))
"""

FORK = """
import os, torch
def work():
    with torch.profiler.profile():
        torch.compile(lambda t: t + 1, backend="eager")(torch.ones(2))
work()
if (child := os.fork()) == 0:
    try:
        work()
    except Exception as error:
        print("child:", type(error).__name__, flush=True)
        os._exit(1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

FAKE = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    x = torch.ones(2, 3, 4, 4)
    print(torch.nn.functional.conv2d(x, torch.ones(4, 3, 3, 3)).stride())
"""

EXPORT = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, True).relu()
program = torch.export.export(Model(), (torch.ones(4),))
print([str(node.target) for node in program.graph.nodes])
"""

PROGRAMS = (CHECKPOINT, PROFILE, FAKE, EXPORT, FORK)
AFTERWARDS = """
if hasattr(torch, "flagos"):
    assert not torch.flagos.is_initialized()
"""


@pytest.mark.host  # where torch has CUDA, these programs notice CUDA
def test_the_device_is_not_noticed(run_python):
    script = "".join(program + AFTERWARDS for program in PROGRAMS)
    beside = run_python(script, fresh=True)
    alone = run_python(script, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert beside.stdout == alone.stdout
    assert "Forked" not in beside.stderr


def test_a_current_stream_that_a_graph_asks_for_is_the_devices(run_python):
    script = """
import torch
def f(x):
    return x + 1, torch.accelerator.current_stream()
y, stream = torch.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
print(stream.device.type, stream == torch.accelerator.current_stream())
"""
    assert run_python(script).stdout.split() == ["flagos", "True"]

"""`torch.cuda` for modules that mean flagos by it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Run = Callable[..., "subprocess.CompletedProcess[str]"]

MODULE = """
import types, torch
from vllm_flagos import torch_view
module = types.ModuleType("theirs")
exec('''
import torch
def place(): return torch.cuda.current_stream().device.type
def on(stream):
    with torch.cuda.stream(stream): return torch.cuda.current_stream()
def event(): return torch.cuda.Event(blocking=True)
''', vars(module))
torch_view.install(module)
"""


def test_a_module_sees_flagos_and_nobody_else(run_python: Run) -> None:
    script = """
before = dict(vars(torch.cuda))
assert module.place() == "flagos"
stream = module.torch.cuda.Stream()
import vllm.utils.torch_utils as torch_utils
assert module.on(stream) == stream
assert torch_utils._current_stream_tls.value == torch.flagos.current_stream() != stream
event = module.event(); event.record(); event.synchronize()
assert module.torch.Tensor is torch.Tensor and module.torch.nn is torch.nn
assert module.torch.cuda.OutOfMemoryError is torch.cuda.OutOfMemoryError
assert module.torch.cuda.get_device_capability(torch.device("flagos", 0))
torch_view.restore()
assert all(vars(torch.cuda)[n] is v for n, v in before.items())
"""
    run_python(MODULE + script)


def test_a_device_without_graphs_says_so(run_python: Run) -> None:
    script = """
import flagos
try:
    module.torch.cuda.CUDAGraph()
except flagos.UnsupportedError as error:
    assert "capture" in str(error)
else:
    raise AssertionError
"""
    run_python(MODULE + script, FLAGOS_VENDOR="host")


def test_a_module_of_another_release_is_refused(run_python: Run) -> None:
    script = """
import types
from vllm_flagos import torch_view
torch_view.install(types.ModuleType("vllm.theirs"))
"""
    run = run_python(script, fails=True)
    assert "vllm.theirs has no `torch`: this release of vLLM is not the one" in run.stderr

"""Beside a device that torch knows already, flagos is registered when a program asks for it.

The device is the simulated driver's: flagos finds it, torch says that its driver is too old. Both sides can
be told apart without computing on it; tests/gpu/beside_cuda.py does so on a real one.
"""

from __future__ import annotations

import sys
import textwrap
from functools import partial

import pytest

from adapters.torch.tests.simulated import simulated_driver

pytestmark = pytest.mark.host

STATE = """
import torch
def state():
    name = torch._C._get_privateuse1_backend_name()
    kernels = torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", "PrivateUse1")
    return f"{name} {kernels} {torch.accelerator.current_accelerator()}"
"""
UNASKED = "privateuseone False cuda"
ASKED = "flagos True flagos"


@pytest.fixture
def run(run_python):
    libraries = str(simulated_driver())
    return partial(run_python, fresh=True, LD_LIBRARY_PATH=libraries, FLAGOS_VENDOR=None)


def _outcome(run, script, **environment):
    """The lines that `script` printed, and the device's state after it."""
    whole = f"{STATE}\n{textwrap.dedent(script)}\nprint(state())"
    *printed, state = run(whole, **environment).stdout.splitlines()
    return printed, state


ORDINARY = """
import importlib, io, pickle, sys, threading, warnings
import torch
import torch.distributed as dist, torch.distributed.checkpoint, torch.distributed.fsdp
import torch.distributed.device_mesh, torch.distributed.tensor
from torch.distributed import distributed_c10d as c10d

def said(what, ask):
    try:
        print(what, ask())
    except Exception as error:
        print(what, type(error).__name__, error)

print(torch.autograd.profiler._supported_activities() is not None, torch.profiler.supported_activities())
said("accelerator", torch.accelerator.current_accelerator)
said("available", torch.accelerator.is_available)
said("integer", lambda: torch.device(0))
said("stream", lambda: torch.Stream())
said("event", lambda: torch.Event())
said("to", lambda: torch.ones(1).to(0))
said("module", lambda: torch.nn.Linear(1, 1).to(0))
said("device=", lambda: torch.ones(1, device=0))
said("unknown", lambda: torch.device("floogos"))
said("privateuseone", lambda: torch.device("privateuseone"))
said("module", torch.get_device_module)
said("mesh", lambda: c10d._get_default_timeout("nccl"))
said("defaults", lambda: sorted(dist.Backend.default_device_backend_map.items())[:2])
said("pinned", lambda: torch.ones(1).is_pinned())
said("methods", lambda: sorted(name for name in dir(torch.Tensor) if "flagos" in name))
said("engine", lambda: torch.autograd.graph._engine_run_backward.__module__)
said("dlpack", lambda: torch.Tensor.__dlpack__.__module__)
saved = io.BytesIO()
torch.save({"x": torch.arange(3.0)}, saved)
for where in ("cpu", "cuda:0", "floogos"):
    saved.seek(0)
    said(f"load {where}", lambda: torch.load(saved, map_location=where))
x = torch.ones(3, requires_grad=True)
(x * x).sum().backward()
print(x.grad, torch.compiler.is_compiling(), torch.utils.checkpoint.DefaultDeviceType.get_device_type())
"""


@pytest.mark.slow
def test_a_program_that_does_not_ask_sees_no_difference(run):
    alone = run(ORDINARY, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    beside = run(ORDINARY, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert beside.stdout == alone.stdout
    # The environment may lie in a folder of that name, which modules print.
    report = alone.stdout.replace(sys.prefix, "")
    assert "flagos" not in report and len(report.splitlines()) > 20


@pytest.mark.slow
def test_the_comparison_would_notice(run):
    asked = f"import torch_fl\n{ORDINARY}"
    assert run(asked).stdout != run(ORDINARY, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout


NOT_ASKING = """
print(state())
print(torch.flagos.is_available(), torch.flagos.device_count(), torch.flagos.is_initialized())
print(hasattr(torch, "flagos"), state())
import torch.flagos
print("imported", state())
import inspect
print(inspect.getmodule(torch.flagos), inspect.getdoc(torch.flagos) is None, state())
torch.manual_seed(1), torch.rand(1)
print("seeded", state())
for name in ("flagos2", "flagosx:0", "Flagos"):
    try:
        torch.device(name)
    except RuntimeError:
        print(name, state())
"""


def test_not_asked_for(run):
    printed, state = _outcome(run, NOT_ASKING)
    assert state == UNASKED
    assert printed == [
        UNASKED,
        "True 2 False",
        f"True {UNASKED}",
        f"imported {UNASKED}",
        f"<module 'torch.flagos'> False {UNASKED}",
        f"seeded {UNASKED}",
        *(f"{name} {UNASKED}" for name in ("flagos2", "flagosx:0", "Flagos")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("import torch_fl", id="import torch_fl"),
        pytest.param("from torch_fl import flagos", id="from torch_fl import"),
        pytest.param("import torch_fl.flagos.amp", id="import a submodule"),
        pytest.param("torch.device('flagos')", id="device"),
        pytest.param("torch.device('flagos:1')", id="device with an index"),
        pytest.param("torch.device('flagos', 1)", id="device and index"),
        pytest.param("torch.get_device_module('flagos')", id="get_device_module"),
        pytest.param("torch.set_default_device('flagos')", id="set_default_device"),
        pytest.param("torch.amp.is_autocast_available('flagos')", id="autocast"),
        pytest.param("torch.flagos.Stream", id="a name of the module"),
        pytest.param("from torch.flagos import memory_allocated", id="from torch.flagos import"),
        pytest.param(
            "import torch.flagos.amp; torch.flagos.amp.is_autocast_available", id="submodule"
        ),
        pytest.param(
            "import threading\n"
            "threads = [threading.Thread(target=torch.device, args=('flagos',)) for _ in range(8)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]",
            id="eight threads",
        ),
    ],
)
def test_asked_for(script, run):
    assert _outcome(run, script)[1] == ASKED


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FLAGOS_ACCELERATOR", "PLATFORM"])
def test_asked_for_by_the_environment(name, run):
    assert _outcome(run, "", **{name: "flagos"})[1] == ASKED
    assert _outcome(run, "", **{name: "cuda"})[1] == UNASKED


@pytest.mark.slow
@pytest.mark.parametrize("library", ["accelerate", "transformers.training_args"])
def test_asked_for_by_the_choice_of_accelerate(library, run):
    pytest.importorskip(library.partition(".")[0])
    for device, state in (("flagos", ASKED), ("flagos:1", ASKED), ("cuda", UNASKED)):
        outcome = _outcome(run, f"import {library}", ACCELERATE_TORCH_DEVICE=device)
        assert outcome[1] == state, device
    assert _outcome(run, "", ACCELERATE_TORCH_DEVICE="flagos")[1] == UNASKED


def test_the_modules_are_one(run):
    script = """
    stand_in = torch.flagos
    import torch.flagos.amp as amp
    import torch_fl, torch_fl.flagos
    print(torch.flagos is torch_fl.flagos, amp is torch_fl.flagos.amp, amp.__spec__.name)
    print(stand_in.amp is amp, stand_in is torch.flagos, torch_fl.aten.routing is not None)
    """
    printed, _ = _outcome(run, script)
    assert printed == ["True True torch_fl.flagos.amp", "True False True"]


def test_after_asking_everything_answers_flagos(run):
    script = """
    torch.device("flagos")
    print(torch.accelerator.current_accelerator(), torch.device(0), torch.device(1))
    print(torch.Event().device.type)
    """
    printed, _ = _outcome(run, script)
    assert printed == ["flagos flagos:0 flagos:1", "flagos"]


@pytest.mark.slow
def test_a_checkpoint_of_the_device_asks(run, run_python, tmp_path):
    saved = tmp_path / "saved.pt"
    save = f"import torch; torch.save(torch.ones(2, device='flagos'), {str(saved)!r})"
    run_python(save, fresh=True)
    script = f"""
    print(torch.load({str(saved)!r}, map_location="cpu"), state())
    try:
        torch.load({str(saved)!r})
    except RuntimeError as error:
        print("torch.flagos.is_available() is False" in str(error))  # torch's word on the simulated driver
    """
    printed, state = _outcome(run, script)
    assert printed == [f"tensor([1., 1.]) {UNASKED}", "True"] and state == ASKED


def test_the_backend_of_torch_distributed_asks(run):
    script = """
    import torch.distributed as dist
    print("flagos" in dist.Backend.backend_list, state())
    dist.init_process_group("cpu:flagos", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.ones(2)
    dist.all_reduce(x)
    print(x.sum().item(), dist.get_backend())
    """
    printed, state = _outcome(run, script)
    assert printed == [f"True {UNASKED}", "2.0 cpu:flagos"] and state == ASKED


REFUSED = """
{prepare}
for _ in range(2):
    try:
        torch.ones(1, device="flagos")
    except RuntimeError as error:
        print("said", "{evidence}" in str(error))
print(torch.ones(2).sum().item())
"""


@pytest.mark.parametrize(
    ("prepare", "evidence"),
    [
        pytest.param("torch.utils.rename_privateuse1_backend('npu')", "already owns it", id="another owner"),
        pytest.param(
            "torch._C._has_cuda = False", "built without its device type 'cuda'", id="torch without CUDA"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_says_why_each_time(prepare, evidence, run):
    script = f"import torch\n{REFUSED.format(prepare=prepare, evidence=evidence)}"
    assert run(script).stdout.splitlines() == ["said True", "said True", "2.0"]


def test_a_torch_without_cuda_shows_no_devices(run):
    script = "torch._C._has_cuda = False; print(torch.flagos.is_available())"
    assert _outcome(run, script) == (["False"], UNASKED)


def test_a_forked_child_asks_for_itself(run):
    script = """
    import os
    child = os.fork()
    if child == 0:
        torch.device("flagos")
        os._exit(0 if state().startswith("flagos") else 1)
    print(os.waitpid(child, 0)[1])
    """
    assert _outcome(run, script) == (["0"], UNASKED)

"""Fixtures of the device's tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# Two devices, so that index handling is tested; read when a device is first used.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")

import torch

import torch_fl  # noqa: F401  beside CUDA the device is registered by this, before tests name it
from adapters.torch.tests.launch import run_script
from core.vendors.ascend.simulated.library import library as acl_library
from python.tests.chips import example_chip
from python.tests.interpreters import (  # noqa: F401  fixtures
    bare_python,
    diagnose,
    fakes,
    interpreter,
    without_torch,
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]

# The vendor that is tested holds for every process that a test starts.
KEPT = ("FLAGOS_VENDOR", "FLAGOS_VENDOR_PATH")


@pytest.fixture(scope="session", autouse=True)
def _one_result(one_result: None) -> None:
    """Every test compares with the native device."""


@pytest.fixture
def run_python() -> Run:
    """Runs a script in a process of its own and returns what it printed.

    Keyword arguments are environment variables; None removes one. `fails=True` expects a failure. With
    `fresh=True` it is a new interpreter; otherwise torch has been imported, without the device.
    """

    def run(
        script: str, *, fails: bool = False, fresh: bool = False, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FLAGOS_") or name in KEPT
        }
        return run_script(script, environment, variables, fails=fails, fresh=fresh)

    return run


@pytest.fixture(scope="session")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the example chip's library and manifest."""
    return example_chip(tmp_path_factory.mktemp("vendors"))


# What scripts on the example chip begin with.
ON_CHIP = """
import torch, torch_fl
from torch_fl.aten.routing import counters
from flagos import FlagosError

def device(tensor):
    return tensor.detach().to("flagos").requires_grad_(tensor.requires_grad)

def fallbacks():
    return {op: numbers["fallbacks"] for op, numbers in counters().items() if numbers["fallbacks"]}

def close(there, here):
    assert there.device.type == "flagos" and there.shape == here.shape and there.dtype == here.dtype
    torch.testing.assert_close(there.cpu(), here)

def same(there, here):
    assert there.stride() == here.stride() and there.dtype == here.dtype
    assert torch.equal(there.cpu(), here), (there.cpu(), here)

torch.manual_seed(0)
"""


@pytest.fixture
def on_chip(chip: Path, run_python: Run) -> Run:
    """Runs a script on the example chip, after `ON_CHIP`, in a process of its own: a process has one vendor."""

    def run(script: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
        vendor = {
            "FLAGOS_VENDOR": "example",
            "FLAGOS_VENDOR_PATH": str(chip),
            "EXAMPLE_CHIP_KERNELS": None,
        }
        return run_python(ON_CHIP + script, **{**vendor, **variables})

    return run


# How the vendor `ascend` asks the runtime, and is refused: whether a thread has a context, and the order of two events.
ACL_QUESTIONS = ("(refused: 107002)", "(refused: 107003)", "(refused: 107007)")


@pytest.fixture(scope="session")
def acl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Ascend's simulated runtime."""
    folder = tmp_path_factory.mktemp("acl")
    shutil.copy(acl_library(), folder / "libascendcl.so")
    return folder


@pytest.fixture
def on_ascend(acl: Path, run_python: Run, tmp_path: Path) -> Run:
    """Runs a script on Ascend's simulated runtime; fails for what that found wrong."""

    def run(script: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
        report = tmp_path / "report"
        # None with Ascend's operators, which are there when these tests run on that vendor.
        inherited = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        path = [str(acl), *(at for at in inherited if at and not Path(at, "libopapi.so").exists())]
        environment = {
            "FLAGOS_VENDOR": "ascend",
            "LD_LIBRARY_PATH": os.pathsep.join(path),
            # Where there is no device file, the vendor takes a library that is loaded already.
            "LD_PRELOAD": str(acl / "libascendcl.so"),
            "SIMULATED_ASCEND_REPORT": str(report),
            "ASCEND_RT_VISIBLE_DEVICES": None,
        }
        done = run_python("import torch\n" + script, fresh=True, **{**environment, **variables})
        lines = report.read_text().splitlines() if report.exists() else []
        assert [line for line in lines if not line.endswith(ACL_QUESTIONS)] == []
        return done

    return run


@pytest.fixture
def two_devices() -> None:
    """For tests about more than one device."""
    if torch.flagos.device_count() < 2:
        pytest.skip("needs two flagos devices (FLAGOS_HOST_DEVICES=2)")


@pytest.fixture(autouse=True)
def _same_state_after() -> object:
    """Fails a test that leaves another device, stream or route behind."""
    yield
    assert torch.flagos.current_device() == 0
    assert torch.flagos.current_stream() == torch.flagos.default_stream()


@pytest.fixture
def onednn_as_the_device():
    """The CPU computes LSTMs by oneDNN where the device does; a library's chip computes them of their parts."""
    from torch_fl.native import native

    with torch.backends.mkldnn.flags(enabled=native().host_computes):
        yield

"""Which tests this machine can run, and what they share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

# Two devices, so that index handling is tested; read when a device is first used.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")

import torch

import torch_fl

PLATFORMS = ("anyplatform", "cuda", "metax", "ascend", "flaggems", "flaggems_python")


def _platforms_here() -> set[str]:
    vendors = {
        torch.flagos.get_device_properties(i).vendor for i in range(torch.flagos.device_count())
    }
    here = {"anyplatform"} | vendors & {"cuda", "metax", "ascend"}
    if torch_fl.is_flaggems_enabled():
        here.add("flaggems")
        if os.environ.get("FLAGOS_DISABLE_FLAGGEMS_PY", "0") in ("", "0"):
            here.add("flaggems_python")
    return here


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what carries no platform as `anyplatform`, and skip what needs another machine."""
    here = _platforms_here()
    for item in items:
        wanted = {mark.name for mark in item.iter_markers() if mark.name in PLATFORMS}
        if not wanted:
            item.add_marker(pytest.mark.anyplatform)
        missing = sorted(wanted - here)
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"this machine has no {', '.join(missing)}"))


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python() -> Run:
    """Runs a script in a fresh interpreter and returns what it printed.

    Keyword arguments are environment variables; None removes one. `fails=True` expects a failure.
    """

    def run(
        script: str, *, fails: bool = False, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")
        }
        for name, value in variables.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if (done.returncode != 0) != fails:
            pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
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

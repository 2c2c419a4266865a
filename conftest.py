"""Selects tests by what the machine has.

The device of a test is whatever flagos finds, or the vendor that ``--vendor`` names: without a device of that
vendor the run fails instead of skipping. A test marked ``needs`` runs where the vendor has every capability it
names (`CAPABILITIES`); one with the mark of a vendor, which pyproject.toml declares, is about that vendor itself.
Tests marked ``flaggems`` and ``flaggems_python`` run where FlagGems' operators are registered; ``lightx2v`` where
LIGHTX2V_PATH names a checkout of LightX2V; ``vllm`` where VLLM_PATH names a folder with vLLM; ``te`` and ``tefl``
where TE_PATH and TEFL_PATH name TransformerEngine and TransformerEngine-FL. The others are skipped with the reason.
Everything else runs anywhere and can be picked with ``-m anyplatform``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec

import pytest

# How pyproject.toml declares the mark of a vendor.
VENDOR_MARK = re.compile(r"(\w+): is about the vendor itself\b")
VENDOR = "FLAGOS_VENDOR"
FLAGGEMS_MARKS = ("flaggems", "flaggems_python")
LIGHTX2V_MARK = "lightx2v"
LIGHTX2V_PATH = "LIGHTX2V_PATH"
VLLM_MARK = "vllm"
VLLM_PATH = "VLLM_PATH"
# Mark → the variable that names checkouts, or folders of installed packages, separated like a PATH.
TRANSFORMER_ENGINES = {"te": "TE_PATH", "tefl": "TEFL_PATH"}
DISABLED = "FLAGOS_DISABLE_FLAGGEMS_PY"


def _only(*names: str) -> Callable[[], bool]:
    return lambda: bool(vendors() & set(names))


def _served(*ways: str) -> Callable[[], bool]:
    """Whether torch computes on the devices in one of these ways (`flagos._core.vendor_info`)."""

    def served() -> bool:
        if not vendors():
            return False
        from flagos import _core

        return str(_core.vendor_info()["serving"]) in ways

    return served


def _has_kernels() -> bool:
    """Whether most operators run on the devices: the example chip of the tests may have no kernel."""
    return _served("host", "torch")() or _only("ascend")()


@dataclass(frozen=True)
class Capability:
    """Something that not every machine can do, and whether this one can."""

    meaning: str
    present: Callable[[], bool]


CAPABILITIES = {
    "faults": Capability(
        "queued work that is late, or fails, on request (FLAGOS_HOST_DELAY_US, FLAGOS_HOST_FAULT)",
        _only("host"),
    ),
    "cpu_kernels": Capability(
        "a native device that is the CPU, for operators without a kernel for another one",
        _served("host", "library"),
    ),
    "native_numbers": Capability(
        "a native device whose kernels serve flagos, so that every bit and every random number is its own",
        lambda: not _only("ascend")(),
    ),
    "triton": Capability(
        "a vendor that the package `triton` itself compiles for, or none",
        lambda: not _only("ascend")(),
    ),
    "host_memory": Capability(
        "device memory that the host addresses, as simulated libraries do", _served("host")
    ),
    "automatic_graphs": Capability(
        "automatic graphs, and kernels of the device for most operators", _has_kernels
    ),
    "kernels": Capability("kernels of the device for most operators", _has_kernels),
    "shared_storage": Capability(
        "device memory that processes share both ways, and DLPack's kDLExtDev", _served("host")
    ),
    "shared_memory": Capability(
        "device memory of which one process sees what another writes", _served("host", "torch")
    ),
    "aliases": Capability(
        "native tensors over the memory of flagos ones", _served("host", "torch")
    ),
    "generated_code": Capability(
        "a device that torch.compile's Inductor generates code for", _served("host", "torch")
    ),
    "compiler": Capability(
        "a C++ compiler, from which torch.compile makes code for the CPU",
        lambda: any(map(shutil.which, ("g++", "clang++"))),
    ),
}


@pytest.fixture(scope="session")
def native() -> str:
    """The device type whose kernels compute for flagos: "cpu" on the host vendor, torch's own type on others.

    Results on both are equal in every bit. A vendor whose library computes has none, and is compared with the CPU.
    """
    pytest.importorskip("torch_fl", reason="the torch adapter is not installed")
    from torch_fl.native import native

    return native().device_type or "cpu"


@pytest.fixture(scope="session")
def native_implementations(native: str) -> set[str]:
    """What the plan calls the implementations by which the vendor serves operators: its kernels, and the CPU's beside
    a library's."""
    from torch_fl.native import native as serving

    own = f"{serving().backend}.native"
    return {own} if serving().device_type == native else {own, "cpu.fallback"}


@pytest.fixture(scope="session")
def one_result() -> Iterator[None]:
    """Kernels that give the same bits each time, in full precision: cuDNN chooses among several otherwise."""
    import torch

    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


@cache
def vendors() -> frozenset[str]:
    """Vendors of the flagos devices of this machine; empty when the flagos wheel is not installed."""
    if find_spec("flagos") is None:
        return frozenset()
    import flagos

    return frozenset(str(device["vendor"]) for device in flagos.devices())


@cache
def flaggems_enabled() -> bool:
    """Whether the torch adapter has registered FlagGems' operators."""
    if find_spec("torch_fl") is None:
        return False
    import torch_fl

    return bool(torch_fl.is_flaggems_enabled())


def missing(mark: str, vendor_marks: frozenset[str]) -> str | None:
    """Why a test with this mark cannot run here, or None when it can."""
    if mark in vendor_marks and mark not in vendors():
        return f"no flagos device of vendor {mark!r} (this machine has: {', '.join(sorted(vendors())) or 'none'})"
    if mark in FLAGGEMS_MARKS and not flaggems_enabled():
        return "FlagGems' operators are not registered"
    if mark == "flaggems_python" and os.environ.get(DISABLED, "0") not in ("", "0"):
        return f"FlagGems' Python operators are disabled by {DISABLED}"
    if mark in TRANSFORMER_ENGINES:
        variable = TRANSFORMER_ENGINES[mark]
        paths = [path for path in os.environ.get(variable, "").split(os.pathsep) if path]
        if not paths:
            return f"{variable} names no TransformerEngine"
        for path in paths:
            if not os.path.isdir(os.path.join(path, "transformer_engine", "pytorch")):
                return f"{variable}={path} is no TransformerEngine"
    if mark == VLLM_MARK:
        folder = os.environ.get(VLLM_PATH)
        if not folder:
            return f"{VLLM_PATH} names no folder with vLLM: make test-vllm"
        if not os.path.isdir(os.path.join(folder, "vllm", "platforms")):
            return f"{VLLM_PATH}={folder} has no vLLM"
    if mark == LIGHTX2V_MARK:
        checkout = os.environ.get(LIGHTX2V_PATH)
        if not checkout:
            return f"{LIGHTX2V_PATH} names no checkout of LightX2V, which is not on PyPI"
        if not os.path.isfile(os.path.join(checkout, "lightx2v", "infer.py")):
            return f"{LIGHTX2V_PATH}={checkout} is no checkout of LightX2V"
    return None


def lacking(capability: str) -> str | None:
    """Why a test that needs this capability cannot run here, or None when it can."""
    if capability not in CAPABILITIES:
        nearest = get_close_matches(capability, CAPABILITIES, 1) or sorted(CAPABILITIES)
        raise pytest.UsageError(
            f"needs({capability!r}): no such capability; is {nearest[0]!r} meant?"
        )
    if CAPABILITIES[capability].present():
        return None
    return f"needs {CAPABILITIES[capability].meaning}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--vendor NAME``: the vendor whose devices the tests must run on."""
    parser.addoption(
        "--vendor",
        metavar="NAME",
        help="run on this vendor's devices, or fail (FLAGOS_VENDOR)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the vendor, for this process and those that tests start."""
    vendor = config.getoption("--vendor")
    if vendor is None:
        return
    os.environ[VENDOR] = vendor
    if vendor not in vendors():
        raise pytest.UsageError(
            f"--vendor {vendor}: no flagos device of vendor {vendor!r} (this machine has: "
            f"{', '.join(sorted(vendors())) or 'none'})"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what runs anywhere, and skips what this machine cannot run."""
    declared = map(VENDOR_MARK.match, config.getini("markers"))
    vendor_marks = frozenset(found[1] for found in declared if found)
    for item in items:
        marks = [
            mark
            for mark in (
                *vendor_marks,
                *FLAGGEMS_MARKS,
                LIGHTX2V_MARK,
                VLLM_MARK,
                *TRANSFORMER_ENGINES,
            )
            if item.get_closest_marker(mark)
        ]
        needs = [name for mark in item.iter_markers("needs") for name in mark.args]
        if not marks and not needs:
            item.add_marker(pytest.mark.anyplatform)
        for reason in (*(missing(mark, vendor_marks) for mark in marks), *map(lacking, needs)):
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))

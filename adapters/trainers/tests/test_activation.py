"""flagos serves a trainer where it is asked for, whole or by an error; nothing changes otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

DEEPSPEED = """
import json, deepspeed
from deepspeed.accelerator.real_accelerator import SUPPORTED_ACCELERATOR_LIST as supported
chosen = deepspeed.get_accelerator()
print(json.dumps([chosen if isinstance(chosen, str) else chosen.device_name(), supported]))
"""
MEGATRON = """
import json, torch
from megatron.plugin.platform import get_platform
import megatron.core
platform = get_platform()
found = megatron.core.places(torch.ones(2)) if not isinstance(platform, str) else {}
found["graph"] = found.get("graph") is torch.flagos.Graph
print(json.dumps([platform if isinstance(platform, str) else str(platform.device(0)), found]))
"""
INSTALLED = {"deepspeed": "0.19.8"}
NO_DEVICE = {"FLAGOS_VENDOR": "nothere"}
WHY = "this process has no flagos device: FLAGOS_VENDOR: there is no vendor `nothere`"


def test_deepspeed_is_left_alone_unless_it_is_asked_for(process: Callable[..., Any]) -> None:
    assert process(DEEPSPEED, INSTALLED) == ["DeepSpeed's cpu", ["cuda", "cpu"]]


def test_deepspeed_takes_flagos(process: Callable[..., Any]) -> None:
    found = process(DEEPSPEED, INSTALLED, DS_ACCELERATOR="flagos")
    assert found == ["flagos", ["cuda", "cpu", "flagos"]]


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (
            {"deepspeed": "0.20.0"},
            "DeepSpeed 0.20.0 is installed, and this flagos-trainers knows 0.19.8",
        ),
        ({}, "DeepSpeed is not installed: pip install deepspeed==0.19.8"),
    ],
)
def test_deepspeed_takes_no_other_accelerator(
    process: Callable[..., Any], versions: dict[str, str], reason: str
) -> None:
    error = process(DEEPSPEED, versions, fails=True, DS_ACCELERATOR="flagos")
    assert reason in error and "unset DS_ACCELERATOR" in error


def test_deepspeed_without_a_device_says_why(process: Callable[..., Any]) -> None:
    error = process(DEEPSPEED, INSTALLED, fails=True, DS_ACCELERATOR="flagos", **NO_DEVICE)
    assert f"flagos cannot serve DeepSpeed: {WHY}" in error


def test_an_abstract_name_of_a_newer_deepspeed_is_an_error(process: Callable[..., Any]) -> None:
    error = process(
        "import deepspeed\ndeepspeed.get_accelerator()",
        INSTALLED,
        fails=True,
        DS_ACCELERATOR="flagos",
        ABSTRACT="warp_size",
    )
    assert "its accelerator cannot be made" in error and "warp_size" in error


def test_a_configuration_that_needs_cuda_kernels_is_refused(process: Callable[..., Any]) -> None:
    program = (
        "import deepspeed\nfrom deepspeed.runtime.config import DeepSpeedConfig\n"
        "assert DeepSpeedConfig({'zero_optimization': {'stage': 3}}).checked\n"
        "DeepSpeedConfig({'zero_optimization': {'zero_quantized_weights': True}, 'amp': {'enabled': True}})\n"
    )
    error = process(program, INSTALLED, fails=True, DS_ACCELERATOR="flagos")
    assert "zero_optimization.zero_quantized_weights: ZeRO++" in error and "amp.enabled" in error


def test_megatron_is_left_alone_unless_it_is_asked_for(process: Callable[..., Any]) -> None:
    program = MEGATRON.replace("import megatron.core\n", "")
    assert process(program)[0] == "Megatron's cpu"


def test_megatron_takes_flagos_and_its_cuda_means_it(process: Callable[..., Any]) -> None:
    device, found = process(MEGATRON, FLAGOS_MEGATRON="1", FLAGOS_LOG="off")
    assert device == "flagos:0"
    assert found == {
        "count": 1,
        "graph": True,
        **dict.fromkeys(("made", "numbered", "moved", "backend"), "flagos"),
        "asked": True,
        "called": [True],
    }


@pytest.mark.parametrize("order", [1, -1])
def test_megatron_without_a_device_says_why(process: Callable[..., Any], order: int) -> None:
    # Megatron's package has its copy of `get_platform` after torch is there, or before.
    first, second = ("torch", "megatron.plugin.platform")[::order]
    program = f"import {first}, {second}\nmegatron.plugin.platform.get_platform().device_name()"
    error = process(program, fails=True, FLAGOS_MEGATRON="1", **NO_DEVICE)
    assert f"flagos cannot serve Megatron-LM-FL: {WHY}" in error


def test_places_that_no_table_has_are_named(process: Callable[..., Any]) -> None:
    error = process(MEGATRON, fails=True, FLAGOS_MEGATRON="1", FLAGOS_STRICT="1")
    assert (
        "megatron.core has other places that say cuda" in error and "flagos trainers check" in error
    )


def test_torch_must_come_before_modules_that_say_cuda(process: Callable[..., Any]) -> None:
    # The module is loaded without torch, as one would be that is imported before it.
    program = (
        "import importlib.machinery, sys, types\n"
        "spec = importlib.machinery.PathFinder.find_spec('megatron')\n"
        "module = types.ModuleType('megatron.core')\n"
        "module.__file__ = list(spec.submodule_search_locations)[0] + '/core/__init__.py'\n"
        "sys.modules['megatron.core'] = module\nimport torch\n"
    )
    error = process(program, fails=True, FLAGOS_MEGATRON="1")
    assert "megatron.core was imported before torch" in error


@pytest.mark.parametrize("variable", ["DS_ACCELERATOR", "FLAGOS_MEGATRON"])
def test_a_missing_wheel_is_named(process: Callable[..., Any], variable: str) -> None:
    without = "import flagos.adapters as adapters\nadapters.contributions = lambda group: []\n"
    program = without + (
        "import torch"
        if variable == "FLAGOS_MEGATRON"
        else "import deepspeed\ndeepspeed.get_accelerator()"
    )
    value = "1" if variable == "FLAGOS_MEGATRON" else "flagos"
    error = process(program, fails=True, **{variable: value})
    assert f"{variable}={value} needs flagos-trainers" in error
    assert "pip install 'flagos[trainers]'" in error

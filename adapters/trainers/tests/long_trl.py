"""TRL's GRPO on flagos. With transformers' generation it has the words, rewards, losses and gradients of the CPU.

VLLM_PATH names the folder of `make test-vllm`: then vLLM generates, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from adapters.trainers.tests.ranks import (
    PROGRAMS,
    checkout,
    environment,
    folder,
    launch,
    results,
)

folder()
PROGRAM = PROGRAMS / "grpo.py"
CHOICES = {"flagos": {"ACCELERATE_TORCH_DEVICE": "flagos"}, "cpu": {"ACCELERATE_USE_CPU": "true"}}


def alone(device: str, place: Path, *arguments: str, beside: tuple[Path, ...] = ()) -> Any:
    variables = environment(*beside, HF_HUB_OFFLINE="1", **CHOICES[device])
    command = [sys.executable, str(PROGRAM), str(place), *arguments]
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return next(iter(results(done.stdout).values()))


def test_one_process_says_what_the_cpu_says(tmp_path: Path) -> None:
    ours, theirs = (alone(device, tmp_path / device) for device in CHOICES)
    assert (ours["device"], theirs["device"]) == ("flagos:0", "cpu")
    assert ours["steps"] == theirs["steps"] and ours["said"] == theirs["said"]
    assert len({tuple(step) for step in ours["steps"]}) > 1


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    whole, resumed = alone("flagos", tmp_path), alone("flagos", tmp_path, "resume")
    half = len(whole["said"]) // 2
    assert resumed["said"] == whole["said"][half:]
    assert resumed["steps"] == whole["steps"]  # the trainer's log keeps the first two


def test_two_ranks_learn_what_two_of_the_cpu_learn(tmp_path: Path) -> None:
    found = {}
    for name, choice in CHOICES.items():
        variables = environment(HF_HUB_OFFLINE="1", **choice)
        found[name] = results(launch(PROGRAM, str(tmp_path / name), variables=variables))["grpo"]
    assert found["flagos"]["steps"] == found["cpu"]["steps"]


def test_a_sleeping_vllm_says_what_one_awake_says(tmp_path: Path) -> None:
    vllm = checkout("VLLM_PATH", "vllm/__init__.py")
    awake, asleep = (
        alone("flagos", tmp_path / what, what, beside=(vllm,)) for what in ("vllm", "asleep")
    )
    assert awake["steps"] == asleep["steps"] and awake["said"] == asleep["said"]
    assert len({tuple(step) for step in asleep["steps"]}) > 1
    # The trainer's weights have taken the places of those that vLLM had read.
    for found in (awake, asleep):
        assert found["vllm"] == found["model"] != found["before"]
    # A sleep gives back nearly all: caches, and weights.
    assert awake["after"] == awake["awake"] == asleep["awake"] > 20 * asleep["after"]

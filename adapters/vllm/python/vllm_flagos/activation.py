"""Whether flagos serves vLLM in this process.

It does if ``VLLM_PLUGINS`` names it, or if vLLM has no other platform here. vLLM asks several times, in every process.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version

NAME = "flagos"
PLATFORM = "vllm_flagos.platform.FlagosPlatform"
REFUSAL = "vllm_flagos.refusal.Refusal"
# Releases of vLLM that this package knows → the torch each was built for.
VERSIONS = {"0.26": "2.11"}


def platform_class() -> str | None:
    """The class that vLLM shall take as its platform; None if flagos is not asked for and another one is there."""
    if not _asked() and _another() is not None:
        return None
    return PLATFORM if problem() is None else REFUSAL


def _asked() -> bool:
    plugins = os.environ.get("VLLM_PLUGINS")
    return plugins is not None and NAME in (name.strip() for name in plugins.split(","))


@cache
def _another() -> str | None:
    """The name of another platform that vLLM would take here."""
    platforms = import_module("vllm.platforms")
    candidates = dict(platforms.builtin_platform_plugins)
    for entry in entry_points(group="vllm.platform_plugins"):
        if entry.name != NAME:
            candidates[entry.name] = lambda entry=entry: entry.load()()
    for name, asked in candidates.items():
        try:
            found = asked()
        except Exception:
            continue  # vLLM itself goes on to the next platform here
        if found is not None:
            return str(name)
    return None


@cache
def problem() -> str | None:
    """Why flagos cannot serve vLLM in this process, with the remedy; None if it can."""
    try:
        installed = version("vllm")
    except PackageNotFoundError:
        return "vLLM is not installed in this interpreter: pip install vllm==0.26.0"
    wrong = wrong_versions(installed, version("torch"))
    if wrong is not None:
        return wrong
    try:
        import torch

        import_module("torch_fl")
        devices = torch.accelerator.device_count()
        accelerator = torch.accelerator.current_accelerator()
    except Exception as error:
        return f"the device flagos cannot be used ({type(error).__name__}: {error}): `flagos doctor` says more"
    if accelerator is None or accelerator.type != NAME:
        return (
            f"torch's accelerator in this process is {accelerator}, not flagos: `flagos doctor` says why, "
            "and TORCH_DEVICE_BACKEND_AUTOLOAD=0 must not be set"
        )
    if devices == 0:
        return (
            "this process has no flagos device: `flagos devices` shows the vendors with the reasons"
        )
    return None


def wrong_versions(vllm: str, torch: str) -> str | None:
    """Why these releases do not go together here; None if they do."""
    known = ", ".join(f"{ours}.* on torch {theirs}.*" for ours, theirs in VERSIONS.items())
    wanted = VERSIONS.get(".".join(vllm.split(".")[:2]))
    if wanted is None:
        return f"vLLM {vllm} is installed, and this vllm-flagos knows vLLM {known}: pip install vllm==0.26.0"
    if ".".join(torch.split(".")[:2]) != wanted:
        return f"vLLM {vllm} needs torch {wanted}, and torch {torch} is installed: pip install torch=={wanted}.0"
    return None

"""Whether flagos serves vLLM in this process.

It does if ``VLLM_PLUGINS`` names it, or if vLLM has no other platform here. vLLM asks several times, in every process.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version

from flagos_serving.device import device_problem
from vllm_flagos import releases

NAME = "flagos"
PLATFORM = "vllm_flagos.platform.FlagosPlatform"
REFUSAL = "vllm_flagos.refusal.Refusal"


def platform_class() -> str | None:
    """The class that vLLM shall take as its platform; None if flagos is not asked for and another one is there."""
    if not _is_requested() and _another() is not None:
        return None
    return PLATFORM if problem() is None else REFUSAL


def require() -> None:
    """Raises RuntimeError if vLLM has taken another platform than flagos, without asking its plugins."""
    taken = import_module("vllm.platforms").current_platform
    if f"{type(taken).__module__}.{type(taken).__qualname__}" != PLATFORM:
        raise RuntimeError(
            f"flagos is asked for, and vLLM took {type(taken).__name__} without asking its plugins: unset "
            "VLLM_TARGET_DEVICE, or take flagos out of VLLM_PLUGINS"
        )


def _is_requested() -> bool:
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
    for name, is_usable in candidates.items():
        try:
            found = is_usable()
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
        fitting = _fitting(version("torch"))
        return f"vLLM is not installed in this interpreter: pip install vllm=={fitting.tried}"
    wrong = wrong_versions(installed, version("torch"))
    if wrong is not None:
        return wrong
    return device_problem()


def wrong_versions(vllm: str, torch: str) -> str | None:
    """Why these releases do not go together here; None if they do."""
    release = releases.of_vllm(vllm)
    if release is None:
        known = ", ".join(f"{one.minor}.* on torch {one.torch}.*" for one in releases.RELEASES)
        return (
            f"vLLM {vllm} is installed, and this vllm-flagos knows vLLM {known}: "
            f"pip install vllm=={_fitting(torch).tried}"
        )
    if releases.minor(torch) != release.torch:
        return (
            f"vLLM {vllm} needs torch {release.torch}, and torch {torch} is installed: "
            f"pip install torch=={release.torch}.0"
        )
    return None


def _fitting(torch: str) -> releases.Release:
    """The release for this torch, or else the first."""
    return releases.of_torch(torch) or releases.RELEASES[0]

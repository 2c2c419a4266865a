"""Whether flagos serves SGLang in this process.

It does if ``SGLANG_PLATFORM`` names it, or if SGLang has no other platform here. SGLang asks in every process.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version

from flagos_serving.device import device_problem
from sglang_flagos import releases

NAME = "flagos"
PLATFORM = "sglang_flagos.platform:FlagosPlatform"
REFUSAL = "sglang_flagos.refusal:Refusal"
GROUPS = ("sglang.srt.platforms", "sglang.srt.plugins")


@cache
def platform_class() -> str | None:
    """The class that SGLang shall take as its platform; None if flagos is not asked for and another one is there."""
    if not is_requested() and (os.environ.get("SGLANG_PLATFORM") or _another() is not None):
        return None
    return PLATFORM if problem() is None else REFUSAL


def is_requested() -> bool:
    """Whether ``SGLANG_PLATFORM`` names flagos."""
    return os.environ.get("SGLANG_PLATFORM") == NAME


def _another() -> str | None:
    """The name of another platform that SGLang would take here."""
    import torch

    if os.environ.get("SGLANG_USE_CPU_ENGINE", "0") == "1":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if torch.xpu.is_available():
        return "xpu"
    others = {entry.name for entry in entry_points(group=GROUPS[0])} - {NAME}
    return min(others) if others else None


@cache
def problem() -> str | None:
    """Why flagos cannot serve SGLang in this process, with the remedy; None if it can."""
    try:
        installed = version("sglang")
    except PackageNotFoundError:
        fitting = _fitting(version("torch"))
        return f"SGLang is not installed in this interpreter: pip install --no-deps sglang=={fitting.number}"
    wrong = wrong_versions(installed, version("torch")) or _filtered() or _cpu_engine()
    if wrong is not None:
        return wrong
    return device_problem()


def _filtered() -> str | None:
    """SGLANG_PLUGINS lists the plugins that SGLang loads, and an empty one lists none of them by being unset."""
    allowed = os.environ.get("SGLANG_PLUGINS", "")
    if not allowed or NAME in (name.strip() for name in allowed.split(",")):
        return None
    return (
        f"SGLANG_PLUGINS={allowed} leaves its plugin `flagos` out: add it, or unset SGLANG_PLUGINS"
    )


def _cpu_engine() -> str | None:
    if os.environ.get("SGLANG_USE_CPU_ENGINE", "0") != "1":
        return None
    return "SGLANG_USE_CPU_ENGINE=1 makes SGLang compute on the device cpu: unset it"


def wrong_versions(sglang: str, torch: str) -> str | None:
    """Why these releases do not go together here; None if they do."""
    release = releases.of_sglang(sglang)
    if release is None:
        known = ", ".join(f"{one.number} on torch {one.torch}.*" for one in releases.RELEASES)
        return (
            f"SGLang {sglang} is installed, and this sglang-flagos knows SGLang {known}: "
            f"pip install --no-deps sglang=={_fitting(torch).number}"
        )
    if releases.minor(torch) != release.torch:
        return (
            f"SGLang {sglang} needs torch {release.torch}, and torch {torch} is installed: "
            f"pip install torch=={release.torch}.0"
        )
    return None


def _fitting(torch: str) -> releases.Release:
    """The release for this torch, or else the first."""
    return releases.of_torch(torch) or releases.RELEASES[0]

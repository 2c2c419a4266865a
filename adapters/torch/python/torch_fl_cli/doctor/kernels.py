"""Checks of FlagGems and Triton, which provide implementations of kind ``flagos``."""

from __future__ import annotations

import os
from pathlib import Path

from flagos.doctor.check import Check, fail, ok, warn
from flagos.doctor.installation import installed_version
from torch_fl_cli.doctor import triton_ascend

SOURCE = "FLAGGEMS_SOURCE_DIR"


def triton() -> Check:
    """The compiler FlagGems needs."""
    found = {name: installed_version(name) for name in ("triton", "flagtree", "triton-ascend")}
    installed = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if triton_ascend.is_vendors_back_end() and installed:
        if found["triton-ascend"] is None:
            detail = (
                f"{installed}, which has no back end for Ascend: its kernels need triton-ascend"
            )
            return warn("triton", detail, triton_ascend.INSTALL, **found)
        return ok(
            "triton", f"{installed} (`flagos ascend triton` says whether it can be used)", **found
        )
    if installed:
        return ok("triton", installed, **found)
    return ok("triton", "not installed (FlagGems needs it: pip install triton)", **found)


def flaggems() -> Check:
    """Reports the source of FlagGems."""
    source = os.environ.get(SOURCE)
    if source:
        if not Path(source, "__init__.py").is_file():
            return fail(
                "flaggems",
                f"{SOURCE}={source} is not the package flag_gems",
                f"point {SOURCE} at the folder src/flag_gems of a FlagGems checkout, or unset it",
            )
        return ok("flaggems", f"from {source} ({SOURCE})", source=source)
    version = installed_version("flag-gems") or installed_version("flag_gems")
    if version is None:
        return ok(
            "flaggems",
            "not installed: operators run on the vendor's kernels (pip install --no-deps flag_gems "
            "&& pip install sqlalchemy PyYAML packaging numpy; without --no-deps it pins older versions)",
            version=None,
        )
    if installed_version("triton") is None:
        return warn("flaggems", f"{version}, but there is no Triton", "pip install triton")
    return ok("flaggems", version, version=version)

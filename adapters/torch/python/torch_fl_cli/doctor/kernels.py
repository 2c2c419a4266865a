"""Checks of FlagGems and Triton, which provide implementations of kind ``flagos``."""

from __future__ import annotations

import os
from pathlib import Path

from flagos import requirements
from flagos.doctor.check import Check, fail, ok, warn
from flagos.doctor.installation import installed_version
from torch_fl_cli.doctor import triton_ascend

SOURCE = "FLAGGEMS_SOURCE_DIR"


def _tritons() -> dict[str, str | None]:
    """The versions of the distributions that are the package `triton`."""
    return {name: installed_version(name) for name in ("triton", "flagtree", "triton-ascend")}


def triton() -> Check:
    """The compiler FlagGems needs."""
    found = _tritons()
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
            "not installed: operators run on the vendor's kernels (pip install --no-deps flag_gems==5.0.2 "
            "&& pip install sqlalchemy PyYAML packaging numpy; without --no-deps it pins older versions)",
            version=None,
        )
    if not any(_tritons().values()):
        install = (
            triton_ascend.INSTALL if triton_ascend.is_vendors_back_end() else "pip install triton"
        )
        return warn("flaggems", f"{version}, but there is no Triton", install)
    if (absent := requirements.reason("flag_gems", "FlagGems")) is not None:
        what, command = absent
        return warn("flaggems", f"{version}, but {what}", command)
    return ok("flaggems", version + _unverified(version), version=version)


def _unverified(version: str) -> str:
    """Says that nothing is known of FlagGems' operators on a vendor of which no verdicts are shipped."""
    from flagos import _core

    try:
        vendor = _core.vendor_info()
    except _core.FlagosError:
        return ""
    # As `torch_fl.flaggems.tables` keeps them, which cannot be imported here.
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    table = data / "flagos" / f"verdicts.{vendor['name']}.flaggems-{version}.json"
    if vendor["serving"] != "library" or not vendor["flaggems_vendor"] or table.exists():
        return ""
    return (
        f", unverified on {vendor['name']}: no verdicts are shipped, so that none of its operators serves without a "
        "route (`flagos verify` makes them)"
    )

"""Checks of Python, the native core, and the versions of the distributions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata

from flagos.adapters import published
from flagos.doctor.check import Check, fail, ok, warn
from flagos.processes.reports import run_module

OLDEST_PYTHON = (3, 10)
NEWEST_TESTED_PYTHON = (3, 14)
# `vendor_manifests.GROUP`, whose module needs the native one.
_VENDORS = "flagos.vendors"


def python() -> Check:
    """Checks the version of the interpreter."""
    version = sys.version_info[:3]
    text = f"{'.'.join(map(str, version))} ({sys.executable})"
    if version < OLDEST_PYTHON:
        return fail("python", text, "use Python 3.10 or newer")
    if version[:2] > NEWEST_TESTED_PYTHON:
        return warn("python", f"{text} is newer than what is tested", "prefer Python 3.10 to 3.14")
    return ok("python", text)


def core(timeout: float) -> Check:
    """Checks that the native module loads."""
    outcome = run_module("flagos.doctor.probe_core", timeout=timeout)
    facts = outcome.report("core")
    if facts is None:
        return fail(
            "core",
            f"flagos._core cannot be loaded: {outcome.failure}",
            "pip install --force-reinstall --no-deps flagos",
        )
    detail = f"flagos._core {facts['version']}, ABI {facts['abi_version']}, {facts['file']}"
    return ok("core", detail, **facts)


def distributions() -> Iterator[Check]:
    """Checks that the core and the published adapters have one version."""
    core_version = installed_version("flagos")
    if core_version is None:
        yield fail(
            "distributions",
            "flagos runs from a folder, not from an installation: entry points are missing",
            "pip install flagos",
        )
        return
    for adapter in published():
        version = installed_version(adapter.distribution)
        name = f"distribution {adapter.distribution}"
        if version is None and adapter.optional:
            continue
        if version is None:
            yield warn(name, "not installed", adapter.fix)
        elif version != core_version:
            yield fail(
                name,
                f"{version}, but flagos is {core_version}",
                f"pip install 'flagos[{adapter.extra}]=={core_version}'",
            )
        else:
            yield ok(name, f"{version}, as flagos")
    for chip in _chips():
        version = installed_version(chip)
        if version != core_version:
            yield fail(
                f"distribution {chip}",
                f"{version}, but flagos is {core_version}",
                f"pip install '{chip}=={core_version}'",
            )
        else:
            yield ok(f"distribution {chip}", f"{version}, as flagos")


def _chips() -> list[str]:
    """The project's distributions of chips that are installed; those of others have versions of their own."""
    found = {entry.dist.name for entry in metadata.entry_points(group=_VENDORS) if entry.dist}
    return sorted(name for name in found if name.startswith("flagos-"))


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, read from its metadata; ``None`` if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None

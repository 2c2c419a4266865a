"""torch, the adapter's extension, and who owns torch's slot for out-of-tree devices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flagos.doctor.check import Check, fail, ok, warn
from flagos.doctor.installation import installed_version
from flagos.doctor.process import run_module

ENTRY_POINT_GROUP = "torch.backends"
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def torch_and_adapter(timeout: float) -> Iterator[Check]:
    """torch imports, is the version the extension was built for, and the extension loads."""
    version = installed_version("torch")
    present = find_spec("torch") is not None
    if not present:
        yield fail(
            "torch", "not installed, but torch_fl needs it", f"pip install {_wanted_torch()}"
        )
        return
    built_for = torch_version_built_for()
    matches = version is not None and built_for is not None and _minor(version) == _minor(built_for)
    # An extension built for another torch may crash on opening: it is not even tried.
    arguments = ("torch_fl",) if matches else ()
    outcome = run_module(
        "torch_fl_cli.doctor.probe_torch", arguments, timeout=timeout, environment={AUTOLOAD: "0"}
    )
    facts = outcome.report("torch")
    if facts is None:
        yield fail(
            "torch",
            f"{version or 'unknown version'} does not import: {outcome.failure}",
            f"pip install --force-reinstall {_wanted_torch()}",
        )
        return
    yield ok("torch", f"{facts['version']}, {facts['file']}", **facts)
    if built_for is None:
        yield fail(
            "torch_fl",
            "does not say which torch it was built for: the installation is incomplete",
            "pip install --force-reinstall --no-deps torch-fl",
        )
    elif not matches:
        yield fail(
            "torch_fl",
            f"built for torch {_minor(built_for)}, but torch {version} is installed",
            f"pip install {_wanted_torch()}, or rebuild torch-fl against torch {version}",
            built_for=built_for,
            installed=version,
        )
    else:
        loaded, refused = outcome.report("adapter"), outcome.report("refused")
        if refused is not None:
            yield fail("torch_fl", f"does not load: {refused['message']}", refused["fix"])
        elif loaded is None:
            yield fail(
                "torch_fl",
                f"does not load: {outcome.failure}",
                "pip install --force-reinstall --no-deps flagos torch-fl",
            )
        else:
            yield ok(
                "torch_fl",
                f"{loaded['version']} for torch {loaded['built_for']}, "
                f"{loaded['operators']} operators on the device",
                **loaded,
            )
            yield _plan(outcome.report("plan"), outcome.failure)


def _plan(facts: dict[str, Any] | None, failure: str | None) -> Check:
    if facts is None:
        return fail(
            "plan", f"cannot be resolved: {failure}", "run `flagos ops` to see where it stops"
        )
    if "error" in facts:
        fix = facts["hint"] or "correct the line or variable named in the message"
        return fail("plan", facts["error"], fix)
    unmatched = ", ".join(f"{op} ({source})" for op, source in facts["unmatched"])
    if unmatched:
        return warn(
            "plan",
            f"routes for operators that no installed adapter registers: {unmatched}",
            "remove them, or install the adapter they are for",
            **facts,
        )
    return ok("plan", "every route names a known operator and a usable implementation", **facts)


def device_plugins() -> Check:
    """Entry points that compete for the device slot."""
    entries = metadata.entry_points(group=ENTRY_POINT_GROUP)
    ours = [entry for entry in entries if entry.module.split(".")[0] == "torch_fl"]
    others = sorted(f"{entry.name} ({entry.value})" for entry in entries if entry not in ours)
    data = {"ours": [entry.value for entry in ours], "others": others}
    if others:
        names = ", ".join(others)
        return warn(
            "device plugins",
            f"torch has one slot for out-of-tree devices, and these want it too: {names}",
            f"uninstall what you do not use, or set {AUTOLOAD}=0 and import the one you want",
            **data,
        )
    if not ours:
        return warn(
            "device plugins",
            f"torch_fl is importable but has no entry point in {ENTRY_POINT_GROUP!r}: "
            "`import torch` alone does not bring the device",
            "install torch-fl with pip, or `import torch_fl` in the program",
            **data,
        )
    return ok("device plugins", "no other plugin wants torch's device slot", **data)


def autoload() -> Check:
    """Checks whether ``import torch`` alone registers the device."""
    if os.environ.get(AUTOLOAD, "1") == "0":
        return warn(
            "autoload",
            f"{AUTOLOAD}=0: `import torch` alone does not bring the device",
            f"unset {AUTOLOAD}, or `import torch_fl` in the program",
        )
    return ok("autoload", "`import torch` brings the device")


def fork() -> Check:
    """Informs that a forked child cannot use the device."""
    return ok(
        "fork",
        "a child forked after first use of a device gets a clear error: start workers that use "
        "the device with the 'spawn' method",
    )


def torch_version_built_for() -> str | None:
    """The torch the extension was compiled against, read without importing anything."""
    spec = find_spec("torch_fl")
    if spec is not None and spec.origin is not None:
        try:
            text = Path(spec.origin).with_name("_build.py").read_text(encoding="utf-8")
        except OSError:
            text = ""
        found = re.search(r'^TORCH_VERSION\b[^=]*=\s*"([\d.]+)"', text, re.MULTILINE)
        if found:
            return found[1]
    try:
        requirements = metadata.requires("torch-fl") or []
    except metadata.PackageNotFoundError:
        return None
    for requirement in requirements:
        found = re.match(r"torch\s*\(?\s*(?:==|~=)\s*([\d.]+)", requirement)
        if found:
            return found[1].rstrip(".")
    return None


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _wanted_torch() -> str:
    wanted = torch_version_built_for()
    return f"'torch=={_minor(wanted)}.*'" if wanted else "torch"

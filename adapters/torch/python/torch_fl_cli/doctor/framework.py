"""torch, the adapter's extension, and who owns torch's slot for out-of-tree devices."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flagos import ConfigError, _core
from flagos.doctor.check import Check, fail, ok, warn
from flagos.doctor.installation import installed_version
from flagos.processes.reports import run_module
from torch_fl_cli import run
from torch_fl_cli.shims import minor_of, shims_present

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
    shims = shims_present()
    matches = version is not None and minor_of(version) in shims
    # Native code for another torch may crash on opening: it is not even tried.
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
    if not shims:
        yield fail(
            "torch_fl",
            "has no native code for any torch: the installation is incomplete",
            "pip install --force-reinstall --no-deps torch-fl",
        )
    elif not matches:
        yield fail(
            "torch_fl",
            f"built for torch {', '.join(shims)}, but torch {version} is installed",
            f"pip install {_wanted_torch()}, or build torch-fl for torch {version}",
            built_for=list(shims),
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
                f"{loaded['operators']} operators on the device, {Path(loaded['shim']).name} of "
                f"the shims for torch {', '.join(shims)}",
                shims=list(shims),
                **loaded,
            )
            yield _plan(outcome.report("plan"), outcome.failure)
            if (graphs := outcome.report("graphs")) is not None:
                yield from _graphs(graphs)
            if (queue := outcome.report("queue")) is not None:
                yield from _queue(queue)


def _graphs(facts: Mapping[str, Any]) -> Iterator[Check]:
    """Whether automatic graphs are on, and whether the vendor has them."""
    with suppress(ConfigError):  # a check of its own reports a configuration that is not understood
        on, source = _core.graphs()
        data = {"on": on, "source": source, "supported": facts["supported"]}
        vendor = facts["vendor"]
        if on and not facts["supported"]:
            yield fail(
                "automatic graphs",
                f"on by {source}, but there are none on the vendor {vendor}",
                "set FLAGOS_GRAPHS=off",
                **data,
            )
        elif on:
            yield ok("automatic graphs", f"on by {source}, on the vendor {vendor}", **data)
        elif facts["supported"]:
            detail = f"off by {source}; the vendor {vendor} has them: FLAGOS_GRAPHS=auto"
            yield ok("automatic graphs", detail, **data)
        else:
            yield ok("automatic graphs", f"there are none on the vendor {vendor}", **data)


def _queue(facts: Mapping[str, Any]) -> Iterator[Check]:
    """Whether a second thread hands calls to the vendor's library, where the configuration asks for it."""
    if not facts["supported"]:
        yield fail(
            "queue",
            f"on the vendor {facts['vendor']} no second thread can queue calls: that needs a library whose kernels "
            "post their work",
            "unset FLAGOS_QUEUE, and remove `queue` from flagos.toml",
        )
    else:
        yield ok(
            "queue",
            f"a second thread hands calls to the vendor's library ({facts['source']}): what fails there is told at "
            "the next call, or when the program waits",
        )


def _plan(facts: Mapping[str, Any] | None, failure: str | None) -> Check:
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
    blocked = [f"{op} = {route} ({source})" for op, route, source in facts["blocked"]]
    if blocked:
        more = f" and {len(blocked) - 3} more" if len(blocked) > 3 else ""
        return warn(
            "plan",
            f"nothing on this machine serves these routes, and a call raises: {', '.join(blocked[:3])}{more}",
            "`flagos explain` with the operator gives the reasons; add an alternative to the route, such as `|cpu`, "
            "or remove it",
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
    return ok(
        "device plugins", "no other plugin registers a device for torch's one open slot", **data
    )


def autoload() -> Check:
    """Checks whether ``import torch`` alone registers the device."""
    if os.environ.get(AUTOLOAD, "1") == "0":
        return warn(
            "autoload",
            f"{AUTOLOAD}=0: `import torch` alone does not bring the device",
            f"unset {AUTOLOAD}, or `import torch_fl` in the program",
        )
    return ok("autoload", "`import torch` brings the device")


def cuda_names() -> Iterator[Check]:
    """Informs that `cuda` means flagos, where the environment asks for it."""
    with suppress(ConfigError):  # the environment's own check reports a value that is no flag
        if _core.environment_flag(run.VARIABLE):
            yield ok("cuda names", f"{run.VARIABLE}: `cuda` means flagos in programs of torch")


def fork() -> Check:
    """Informs that a forked child cannot use the device."""
    return ok(
        "fork",
        "a child forked after first use of a device gets a clear error: start workers that use "
        "the device with the 'spawn' method",
    )


def _wanted_torch() -> str:
    shims = shims_present()
    return f"'torch=={list(shims)[-1]}.*'" if shims else "torch"

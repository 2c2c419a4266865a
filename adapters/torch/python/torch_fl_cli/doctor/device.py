"""The canaries, seen from outside their process."""

from __future__ import annotations

from collections.abc import Iterator

from flagos.doctor.check import Check, fail, ok, warn
from flagos.processes.reports import run_module
from torch_fl_cli.doctor.canary import CANARIES, DEVICE
from torch_fl_cli.doctor.framework import AUTOLOAD


def canaries(timeout: float, *, autoload_expected: bool) -> Iterator[Check]:
    """The device comes up with torch, belongs to us, and computes what the CPU computes."""
    outcome = run_module("torch_fl_cli.doctor.canary", timeout=timeout)
    device = outcome.report("device")
    if device is None:
        yield fail(
            "device",
            f"torch and torch_fl do not come up together: {outcome.failure}",
            f"see the checks above; set {AUTOLOAD}=0 to keep other plugins out",
        )
        return
    if device["owner"] != DEVICE:
        yield fail(
            "device",
            f"torch's slot for out-of-tree devices belongs to {device['owner']!r}",
            f"uninstall that plugin, or set {AUTOLOAD}=0 and import torch_fl",
            **device,
        )
        return
    if autoload_expected and not device["autoloaded"]:
        yield warn(
            "device",
            "`import torch` alone did not bring the device",
            "reinstall torch-fl with pip (its entry point is missing), or `import torch_fl`",
            **device,
        )
    else:
        yield ok("device", f"{DEVICE}, {device['count']} device(s)", **device)
    for canary in CANARIES:
        yield _canary(canary.__name__, outcome.report(canary.__name__), outcome.failure)
    graphs = outcome.report("graphs")
    if graphs is not None and graphs["calls"]:
        yield ok(
            "graphs of the canary",
            f"{graphs['followed']} of {graphs['calls']} calls followed; the traces hold "
            f"{graphs['held'] / 1024:.1f} KiB (those of a program: `flagos report`)",
            followed=graphs["followed"],
            calls=graphs["calls"],
            bytes_held=graphs["held"],
        )


def _canary(name: str, result: dict[str, object] | None, failure: str | None) -> Check:
    check = f"canary {name.replace('_', ' ')}"
    if result is None:
        detail = f"did not finish: {failure}" if failure else "did not run"
        return fail(
            check, detail, "run `python -m torch_fl_cli.doctor.canary` to see where it stops"
        )
    if not result["passed"]:
        return fail(
            check,
            str(result["reason"]),
            "run `python -m torch_fl_cli.doctor.canary`; `flagos explain` shows what served the operator",
        )
    detail = (
        "wrong results are noticed" if name == "negative_control" else "equal to the CPU's result"
    )
    return ok(check, detail)

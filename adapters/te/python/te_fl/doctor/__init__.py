"""Checks of TransformerEngine: its native library loads, and the plugins of the variables register."""

from __future__ import annotations

import os
from collections.abc import Iterator

from flagos.doctor.check import Check, fail, ok
from flagos.doctor.installation import installed_version
from flagos.processes.reports import run_module

PLUGIN = "NVTE_PLUGIN"
MODULES = "TE_FL_PLUGIN_MODULES"
#: TransformerEngine from 2.14 on calls this function of cuBLASLt, which came after 13.1.0.3.
NEWER_CUBLAS = "cublasLtGroupedMatrixLayoutInit_internal"


def checks(timeout: float) -> Iterator[Check]:
    """The checks of TransformerEngine: none when it is not installed and no variable names a plugin."""
    plugin = os.environ.get(PLUGIN)
    if os.environ.get(MODULES):
        yield _plugins(timeout)
    version = installed_version("transformer-engine")
    if version is None:
        if plugin:
            yield fail(
                "transformer_engine",
                f"not installed, but {PLUGIN}={plugin} is set",
                "pip install --no-build-isolation 'transformer-engine[pytorch]', or use te_fl.core without it",
            )
        return
    outcome = run_module("te_fl.doctor.probe_transformer_engine", timeout=timeout)
    facts = outcome.report("transformer_engine")
    if facts is not None and "error" not in facts:
        yield ok("transformer_engine", f"{version}, {facts['module']}", **facts)
        return
    reason = facts["error"] if facts is not None else outcome.failure
    yield fail("transformer_engine", f"{version} does not load: {reason}", remedy(str(reason)))


def _plugins(timeout: float) -> Check:
    """Checks that the modules of ``TE_FL_PLUGIN_MODULES`` register."""
    outcome = run_module("te_fl.doctor.probe_plugins", timeout=timeout)
    facts = outcome.report("te_fl")
    if facts is not None and "error" not in facts:
        return ok(MODULES, f"{facts['operators']} operators of TransformerEngine", **facts)
    reason = facts["error"] if facts is not None else outcome.failure
    return fail(MODULES, str(reason), f"{MODULES} is a list of importable modules: correct it")


def remedy(reason: str) -> str:
    """The remedy for a native library that does not load because of ``reason``."""
    if NEWER_CUBLAS in reason:
        return (
            "its core needs a newer cuBLAS than torch brings: pip install -U nvidia-cublas, "
            "or a transformer-engine below 2.14"
        )
    return (
        "reinstall it for this torch (pip install --force-reinstall --no-build-isolation "
        "'transformer-engine[pytorch]'), or use te_fl.core without it"
    )

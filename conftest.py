"""Selects tests by what the machine has.

A test marked ``host``, ``cuda``, ``metax`` or ``ascend`` runs where the flagos device is that vendor's;
``flaggems`` and ``flaggems_python`` where FlagGems' operators are registered; ``lightx2v`` where
LIGHTX2V_PATH names a checkout of LightX2V; ``te`` and ``tefl`` where TE_PATH and TEFL_PATH name
TransformerEngine and TransformerEngine-FL. The others are skipped with the reason. Everything else runs
anywhere and can be picked with ``-m anyplatform``.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import pytest

VENDOR_MARKS = ("host", "cuda", "metax", "ascend")
FLAGGEMS_MARKS = ("flaggems", "flaggems_python")
LIGHTX2V_MARK = "lightx2v"
LIGHTX2V_PATH = "LIGHTX2V_PATH"
# Mark → the variable that names checkouts, or folders of installed packages, separated like a PATH.
TRANSFORMER_ENGINES = {"te": "TE_PATH", "tefl": "TEFL_PATH"}
DISABLED = "FLAGOS_DISABLE_FLAGGEMS_PY"


@cache
def vendors() -> frozenset[str]:
    """Vendors of the flagos devices of this machine; empty when the flagos wheel is not installed."""
    if find_spec("flagos") is None:
        return frozenset()
    import flagos

    return frozenset(str(device["vendor"]) for device in flagos.devices())


@cache
def flaggems_enabled() -> bool:
    """Whether the torch adapter has registered FlagGems' operators."""
    if find_spec("torch_fl") is None:
        return False
    import torch_fl

    return bool(torch_fl.is_flaggems_enabled())


def missing(mark: str) -> str | None:
    """Why a test with this mark cannot run here, or None when it can."""
    if mark in VENDOR_MARKS and mark not in vendors():
        return f"no flagos device of vendor {mark!r} (this machine has: {', '.join(sorted(vendors())) or 'none'})"
    if mark in FLAGGEMS_MARKS and not flaggems_enabled():
        return "FlagGems' operators are not registered"
    if mark == "flaggems_python" and os.environ.get(DISABLED, "0") not in ("", "0"):
        return f"FlagGems' Python operators are disabled by {DISABLED}"
    if mark in TRANSFORMER_ENGINES:
        variable = TRANSFORMER_ENGINES[mark]
        paths = [path for path in os.environ.get(variable, "").split(os.pathsep) if path]
        if not paths:
            return f"{variable} names no TransformerEngine"
        for path in paths[:1] if mark == "te" else paths:
            if not os.path.isdir(os.path.join(path, "transformer_engine", "pytorch")):
                return f"{variable}={path} is no TransformerEngine"
    if mark == LIGHTX2V_MARK:
        checkout = os.environ.get(LIGHTX2V_PATH)
        if not checkout:
            return f"{LIGHTX2V_PATH} names no checkout of LightX2V, which is not on PyPI"
        if not os.path.isfile(os.path.join(checkout, "lightx2v", "infer.py")):
            return f"{LIGHTX2V_PATH}={checkout} is no checkout of LightX2V"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what runs anywhere, and skips what this machine cannot run."""
    for item in items:
        platform_marks = [
            mark
            for mark in (*VENDOR_MARKS, *FLAGGEMS_MARKS, LIGHTX2V_MARK, *TRANSFORMER_ENGINES)
            if item.get_closest_marker(mark)
        ]
        if not platform_marks:
            item.add_marker(pytest.mark.anyplatform)
        for mark in platform_marks:
            reason = missing(mark)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))

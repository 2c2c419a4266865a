"""Whether there is a FlagGems, and when it is to serve: what an import of torch_fl asks, without its other modules."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from flagos import requirements

NAME = "flag_gems"
SOURCE = "FLAGGEMS_SOURCE_DIR"
POLICY = "FLAGOS_FLAGGEMS"
PACK = "FLAGOS_PACK"
ON_USE = "verify-on-use"
POLICIES = ("off", "auto", "verified", ON_USE, "all")


def folder() -> Path | None:
    """The folder of the package, without importing it; None when there is none."""
    source = os.environ.get(SOURCE)
    if source:
        return Path(source)
    spec = importlib.util.find_spec(NAME)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def unmet() -> str | None:
    """Why FlagGems cannot be imported, with the command that mends it; None if all that it requires is installed.

    Only what is absent counts, not its version. A checkout has no list of what it requires.
    """
    absent = requirements.reason(NAME, "FlagGems")
    return None if absent is None else ": ".join(absent)


def policy() -> str:
    """Which implementations serve by default: the value of FLAGOS_FLAGGEMS. Raises ValueError for another."""
    value = os.environ.get(POLICY) or POLICIES[0]
    if value not in POLICIES:
        raise ValueError(f"{POLICY}={value}: expected one of {', '.join(POLICIES)}")
    return value

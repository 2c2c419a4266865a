"""FlagGems as it is installed here: without its pins, which would replace what everything else needs."""

from __future__ import annotations

import re
from importlib.metadata import requires, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def pins(text: str) -> dict[str, str]:
    """Exact versions of packages, from lines such as `numpy ==1.26.4` without an extra."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"([\w.-]+)\s*==\s*([\w.+]+)\s*$", line.partition("#")[0].strip()):
            found[match[1].lower()] = match[2]
    return found


def test_the_tested_version_is_installed() -> None:
    wanted = pins((ROOT / "requirements/flaggems.txt").read_text())
    assert {name: version(name) for name in wanted} == wanted


def test_its_pins_replaced_nothing() -> None:
    theirs = pins("\n".join(requires("flag_gems") or []))
    assert {"numpy", "packaging", "pyyaml", "sqlalchemy"} <= set(theirs)
    replaced = [name for name in ("numpy", "packaging") if version(name) == theirs[name]]
    assert not replaced, f"FlagGems' own versions are installed: {replaced}"
    ours = pins((ROOT / "requirements/base.txt").read_text())
    assert ours and {name: version(name) for name in ours} == ours


def test_our_wheel_asks_for_none_of_it() -> None:
    named = " ".join(requires("torch_fl") or []).lower()
    assert "flag_gems" not in named and "flag-gems" not in named and "sqlalchemy" not in named

"""The versions of FlagGems that flagos knows, each a folder of data.

`version.json` in a folder has `checkout`, the digest of the sources of that release (`digest`), and `launcher`, the
hashes of the functions that native launches stand in for (`torch_fl.launcher.source_hashes`). Tables of verdicts and
speeds lie beside it. Kernels of any other version serve a call only after another process has verified it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_CHECKOUT = "source-"
"""What the version of a checkout begins with that is none of the known releases."""


@dataclass(frozen=True)
class Version:
    """What `version.json` says of a release."""

    checkout: str
    launcher: dict[str, str]


@cache
def known() -> dict[str, Version]:
    """Return what is known of each release, by its name, the oldest first."""
    found = {path.parent.name: path for path in FOLDER.glob("*/version.json")}
    ordered = sorted(found, key=lambda name: [int(part) for part in name.split(".")])
    return {name: Version(**json.loads(found[name].read_text())) for name in ordered}


@cache
def of_checkout(package: Path) -> str:
    """Return the release whose sources a folder `flag_gems` holds, to the last byte, or else `source-DIGEST`."""
    here = digest(package)
    named = (name for name, about in known().items() if about.checkout == here)
    return next(named, f"{_CHECKOUT}{here[:12]}")


def digest(package: Path) -> str:
    """Return SHA-256 of a package's Python files, in the order of their names. Takes a third of a second.

    `_version.py`, which building writes, is left out. Raises OSError for a file that cannot be read.
    """
    summed = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.name != "_version.py":
            summed.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return summed.hexdigest()


@cache
def compiler() -> str | None:
    """Return the distribution that is the package `triton`, with its version: `triton 3.6.0`, `flagtree 0.4.0`.

    FlagTree counts where both are installed, since it replaces the package. None where there is neither.
    """
    for name in ("flagtree", "triton"):
        try:
            return f"{name} {distribution(name).version}"
        except PackageNotFoundError:
            continue
    return None


def why_unknown(version: str) -> str | None:
    """Return why nothing is known beforehand of a version's kernels; None for a known version compiled by Triton."""
    if version not in known():
        which = "this checkout" if version.startswith(_CHECKOUT) else f"version {version}"
        return f"{which} of FlagGems is none of those that flagos knows ({', '.join(known())})"
    if (by := compiler()) is not None and by.startswith("flagtree"):
        return f"its kernels are compiled by {by}, and what is known of them was found with Triton"
    return None

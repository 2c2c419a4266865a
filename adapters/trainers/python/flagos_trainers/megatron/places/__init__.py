"""The places that say `cuda` in the releases of Megatron-LM-FL and TransformerEngine-FL that were looked at.

Each table has the modules, and how many places of each kind `retarget` changes there. `flagos trainers places FOLDER`
writes one from a checkout.
"""

from __future__ import annotations

import json
from pathlib import Path

from flagos_trainers import releases


def of(package: str, version: str) -> dict[str, dict[str, int]] | None:
    """The table of a package's release; None for one that is not served."""
    tried = releases.RETARGETED[package].get(releases.minor(version))
    if tried is None:
        return None
    text = Path(__file__).with_name(f"{package}-{tried}.json").read_text(encoding="utf-8")
    table: dict[str, dict[str, int]] = json.loads(text)
    return table

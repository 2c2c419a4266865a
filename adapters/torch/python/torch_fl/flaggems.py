"""Whether operators are served by FlagGems, and if not, why."""

from __future__ import annotations

import flagos

_IMPL_PREFIX = "flaggems."


def is_flaggems_enabled() -> bool:
    """True when the plan serves at least one operator with a FlagGems implementation."""
    return any(
        (entry["winner"] or "").startswith(_IMPL_PREFIX) for entry in flagos.plan()["ops"].values()
    )

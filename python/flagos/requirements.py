"""Finds missing requirements of an installed distribution."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution


def absent(name: str) -> list[str]:
    """Requirements of a distribution, such as ``sqlalchemy==2.0.48``, that are absent in every version.

    Those of extras and of other platforms do not count. Raises PackageNotFoundError if it is not installed itself.
    """
    required = distribution(name).requires or []
    return [one.replace(" ", "") for one in required if ";" not in one and not _installed(one)]


def project(requirement: str) -> str:
    """``sqlalchemy==2.0.48`` → ``sqlalchemy``."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _installed(requirement: str) -> bool:
    try:
        distribution(project(requirement))
    except PackageNotFoundError:
        return False
    return True


def reason(name: str, title: str) -> tuple[str, str] | None:
    """Why a package cannot be imported, and the command that mends it; None if nothing is absent, or it is no
    distribution."""
    try:
        missing = absent(name)
    except PackageNotFoundError:
        return None
    if not missing:
        return None
    pinned = " ".join(f"'{one}'" for one in missing)
    return (
        f"{title} cannot be imported without {', '.join(map(project, missing))}",
        f"pip install --no-deps {pinned}",
    )

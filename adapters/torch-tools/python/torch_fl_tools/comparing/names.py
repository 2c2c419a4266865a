"""Names chosen by patterns, as `--ops` takes them."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches(name: str, patterns: str) -> bool:
    """Whether a name matches one of the comma-separated shell patterns of `--ops`."""
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split(","))

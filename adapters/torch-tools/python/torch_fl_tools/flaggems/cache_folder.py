"""The folder in which findings are kept between programs: `flagos` in `$XDG_CACHE_HOME`, or in `~/.cache`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def folder() -> Path:
    """The path of the folder, which need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flagos"


@contextmanager
def alone(name: str) -> Iterator[None]:
    """The user's other processes that enter by this name wait; the file `name`.lock stays. Raises OSError."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

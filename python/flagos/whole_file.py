"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends, and is removed when it raises.

    It is made beside ``path`` under a name that nobody can foresee, and only if there is nothing of that name: in a
    folder that others may write to, a link of theirs is never followed. Raises OSError.
    """
    beside = path.with_name(f".{secrets.token_hex(16)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write(path: Path, data: bytes | str) -> None:
    """Writes bytes, or text as UTF-8. Raises OSError."""
    with replacing(path) as file:
        file.write(data if isinstance(data, bytes) else data.encode())

"""Caches of compiled programs: what this version of flagos made serves no other version.

Torch's caches on disk know programs by torch's own sources and settings. For a program on flagos the code also follows
from what is here, such as the strides of its operators' results.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

from torch._inductor import codecache

from torch_fl.compile.programs import uses_flagos

_theirs = codecache.FxGraphHashDetails.__init__


@functools.wraps(_theirs)
def _details(self: Any, gm: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> None:
    _theirs(self, gm, example_inputs, *args, **kwargs)
    if uses_flagos(gm, example_inputs):
        self.flagos = _sources()


@functools.cache
def _sources() -> str:
    """A hash of the Python sources that decide on compiled code."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for folder in ("compile", "cuda", "native"):
        for path in sorted((package / folder).glob("*.py")):
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def register() -> None:
    """Make the version part of the keys of programs on flagos. Idempotent."""
    setattr(codecache.FxGraphHashDetails, "__init__", _details)  # noqa: B010

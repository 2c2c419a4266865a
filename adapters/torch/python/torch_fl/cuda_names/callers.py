"""Distinguishes callers: the program, or torch itself."""

from __future__ import annotations

import sys

#: Modules of torch that ask on the program's behalf.
_FOR_THE_PROGRAM = (
    "torch.testing",
    "torch._dynamo.variables",  # evaluates calls of the program while it compiles
    "torch.distributed.run",
    "torch.distributed.launch",
)


def is_torch(depth: int) -> bool:
    """Whether the caller `depth` frames above the function that calls this is torch's own code."""
    name = sys._getframe(depth + 1).f_globals.get("__name__", "")
    if name != "torch" and not name.startswith("torch."):
        return False
    return not name.startswith(_FOR_THE_PROGRAM)

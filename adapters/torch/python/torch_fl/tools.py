"""Entry points of the wheel `torch-fl-tools`, whose commands run within programs too.

A command tells the processes of a program by a variable that it works on them. The wheel contributes a `Tool` for each
such command to the group `torch_fl.tools`, which is imported only where its variable is set. The wheel imports
`torch_fl`, and `torch_fl` knows of it no more than this group.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

GROUP = "torch_fl.tools"
WHEEL = "torch-fl-tools"
#: The variable that asks for each tool.
VARIABLES = {"bisect": "FLAGOS_BISECT", "report": "FLAGOS_REPORT", "record": "FLAGOS_RECORD"}


class MissingToolsError(ImportError):
    """The wheel with the tools is not installed."""


class Tool(Protocol):
    """A command's part within a process of the program."""

    def torch_imported(self) -> None:
        """Called at the end of torch's import, before the device is registered."""

    def kernels_registered(self) -> None:
        """Called when torch has the device's kernels, before any implementation is declared."""

    def implementations_registered(self) -> None:
        """Called when every implementation that torch_fl declares is there."""

    def program_begins(self) -> None:
        """Called last in torch's import. The device may still wait until the program asks for it."""


_requested: list[Tool] | None = None


def requested() -> list[Tool]:
    """Return the tools that this process's variables ask for.

    Raises MissingToolsError, which names the variable and the wheel.
    """
    global _requested
    if _requested is None:
        set_here = {
            name: f"{variable}={os.environ[variable]}"
            for name, variable in VARIABLES.items()
            if os.environ.get(variable)
        }
        _requested = [load(name, source)() for name, source in set_here.items()]
    return _requested


def load(name: str, requested_by: str) -> Any:
    """Import what the wheel contributes by that name. Raises MissingToolsError, which says what asked for it."""
    from flagos.adapters import contributions  # most programs need none

    for contribution in contributions(GROUP):
        if contribution.name == name:
            return contribution.load()
    raise MissingToolsError(
        f"{requested_by} needs {WHEEL}, which is not installed: pip install {WHEEL}"
    )

"""`flagos accuracy` in a process of the program, as the part of `flagos bisect` there calls it."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

from torch_fl.tools import Tool
from torch_fl_tools.accuracy.settings import Settings


class Observing(Tool):
    """Writes what the program yields, and has native kernels round otherwise."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder, self._settings = folder, Settings.read(settings)

    def torch_imported(self) -> None:
        """Set the flags of torch.backends, of which some are functions. The program may set them again."""
        import torch

        for name, value in self._settings.flags:
            place, _, flag = name.rpartition(".")
            owner = attrgetter(place)(torch.backends)
            if callable(getattr(owner, flag)):
                getattr(owner, flag)(value)
            else:
                setattr(owner, flag, value)

    def kernels_registered(self) -> None:
        """Write what the program yields from now on."""
        from torch_fl_tools.accuracy import observed

        observed.take(self._folder, self._settings)

    def program_begins(self) -> None:
        """Round otherwise from now on."""
        if self._settings.rounding is not None:
            from torch_fl_tools.accuracy import rounding

            rounding.begin(self._settings.rounding)

"""Gives torch its kernels for the simulated devices when torch_fl is imported, in every process (`run.py`)."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _BeforeTorchFl(MetaPathFinder):
    """Finds nothing: it is asked for torch_fl before those that do."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "torch_fl":
            sys.meta_path.remove(self)
            from core.vendors.metax.simulated import compute

            compute.install()


sys.meta_path.insert(0, _BeforeTorchFl())

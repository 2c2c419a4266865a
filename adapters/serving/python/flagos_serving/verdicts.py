"""Verdicts on FlagGems' kernels for an engine's operators, by chip, as the plan reads them: `flagos_serving.verify`
makes them.

A table lies beside those about torch's operators (`torch_fl.flaggems.tables`), and has entries of their form.
"""

from __future__ import annotations

import json
import warnings
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from flagos_serving.declaration import Framework

if TYPE_CHECKING:
    from torch_fl.flaggems.table_file import Verdict


class Verdicts:
    """The verdicts for one engine."""

    def __init__(self, framework: Framework) -> None:
        self.kind = framework.module  # in the name of the file
        self.command = f"flagos {framework.module} verify"

    def path(self) -> Path:
        """The file of this chip's table."""
        from torch_fl.flaggems import package, tables

        return tables.folder() / tables.file_name(self.kind, tables.chip(), package.version())

    @cached_property
    def known(self) -> dict[str, Verdict]:
        """Operator → its entry; empty without a table of this chip and this FlagGems."""
        from torch_fl.flaggems.table_file import VERDICTS

        try:
            found: dict[str, Verdict] = json.loads(self.path().read_text())["overloads"]
            if any(entry["verdict"] not in VERDICTS for entry in found.values()):
                raise ValueError("it has a verdict of another name")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warnings.warn(
                f"{self.path()} is not used: {type(error).__name__}: {error}; remove it, or run `{self.command}`",
                RuntimeWarning,
                stacklevel=2,
            )
            return {}
        return found

    def not_by_default(self, op: str) -> str | None:
        """Why FlagGems serves an operator only where a route names it; None where the default order takes it."""
        from torch_fl.flaggems import table_file, tables
        from torch_fl.flaggems.presence import POLICY

        policy, entry = tables.policy(), self.known.get(op)
        where = tables.chip() or "this chip"
        if entry is not None and entry["verdict"] == table_file.FAILED:
            return f"verified to be wrong on {where}: {entry.get('first')}"
        if policy == "off":
            return f"other kernels serve by default: route it here, or set {POLICY}=verified"
        if policy == "all":
            return None
        if entry is None:
            return f"not verified on {where}: run `{self.command}`, or set {POLICY}=all"
        if entry["verdict"] != table_file.STRICT:
            return f"verified {entry['verdict']} on {where}: {entry.get('first')}"
        if policy == "auto":
            return f"its speed beside the other kernels is not measured: set {POLICY}=verified"
        return None

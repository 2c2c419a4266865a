"""Verdicts on FlagGems' kernels for vLLM's operators, by chip, as the plan reads them: `vllm_flagos.verify` makes them.

A table lies beside those about torch's operators (`torch_fl.flaggems.tables`), and has entries of their form.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_fl.flaggems.table_file import Verdict

TABLE = "vllm"  # the kind in the name of its file


def path() -> Path:
    """The file of this chip's table."""
    from torch_fl.flaggems import package, tables

    return tables.folder() / tables.file_name(TABLE, tables.chip(), package.version())


@cache
def known() -> dict[str, Verdict]:
    """Operator → its entry; empty without a table of this chip and this FlagGems."""
    from torch_fl.flaggems.table_file import VERDICTS

    try:
        found: dict[str, Verdict] = json.loads(path().read_text())["overloads"]
        if any(entry["verdict"] not in VERDICTS for entry in found.values()):
            raise ValueError("it has a verdict of another name")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(
            f"{path()} is not used: {type(error).__name__}: {error}; remove it, or run `flagos vllm verify`",
            RuntimeWarning,
            stacklevel=2,
        )
        return {}
    return found


def not_by_default(op: str) -> str | None:
    """Why FlagGems serves an operator only where a route names it; None where the default order takes it."""
    from torch_fl.flaggems import table_file, tables
    from torch_fl.flaggems.presence import POLICY

    policy, entry = tables.policy(), known().get(op)
    where = tables.chip() or "this chip"
    if entry is not None and entry["verdict"] == table_file.FAILED:
        return f"verified to be wrong on {where}: {entry.get('first')}"
    if policy == "off":
        return f"other kernels serve by default: route it here, or set {POLICY}=verified"
    if policy == "all":
        return None
    if entry is None:
        return f"not verified on {where}: run `flagos vllm verify`, or set {POLICY}=all"
    if entry["verdict"] != table_file.STRICT:
        return f"verified {entry['verdict']} on {where}: {entry.get('first')}"
    if policy == "auto":
        return f"its speed beside the other kernels is not measured: set {POLICY}=verified"
    return None

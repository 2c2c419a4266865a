"""Faults that ``--control`` puts into the device's side, to show that the check can fail."""

from __future__ import annotations

from typing import Any

import torch

from .program import Step


class Control:
    """Breaks one thing. This one nothing."""

    def skips(self, step: Step) -> bool:
        """Whether the device does not run a step."""
        return False

    def ends(self, step: Step, names: dict[str, Any], error: str | None) -> str | None:
        """The end of a step that ended with ``error``; a control may change results here."""
        return error


class Bits(Control):
    """The lowest bit of the first element is wrong in what every seventh step makes."""

    def ends(self, step: Step, names: dict[str, Any], error: str | None) -> str | None:
        made = names.get(f"t{step.seed}1")
        if step.seed % 7 or error or not isinstance(made, torch.Tensor):
            return error
        if made.layout == torch.strided and made.numel() and made.dtype != torch.bool:
            with torch.no_grad():
                made.detach().as_strided((1,), (1,)).view(torch.uint8)[0].bitwise_xor_(1)
        return error


class Writes(Control):
    """Writes by an index are lost."""

    def skips(self, step: Step) -> bool:
        return step.name == "setitem"


class Errors(Control):
    """Errors of products, of indices and of backward are swallowed."""

    def ends(self, step: Step, names: dict[str, Any], error: str | None) -> str | None:
        return None if step.name.startswith(("matmul.", "index.", "backward")) else error


# What `torch.ops.flagos.graphs_inject` breaks of automatic graphs.
GRAPH_FAULTS = {"late": 1, "twice": 2}  # a graph is launched one call late; a block is given twice

CONTROLS: dict[str, Control] = {"bits": Bits(), "writes": Writes(), "errors": Errors()}

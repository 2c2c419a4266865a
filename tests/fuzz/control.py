"""What ``--control`` breaks on the device's side, so that it is seen that the check can fail."""

from __future__ import annotations

from typing import Any

import torch

from .program import Step


def _last_bit(tensor: torch.Tensor) -> None:
    flat = tensor.detach().as_strided((1,), (1,)).view(torch.uint8)
    flat[0].bitwise_xor_(1)


def break_results(step: Step, names: dict[str, Any]) -> None:
    """Flips the lowest bit of the first element of what the step made, in some steps."""
    if step.seed % 5:
        return
    for name in reversed(names):
        value = names[name]
        if name == f"t{step.seed}1" and isinstance(value, torch.Tensor) and value.layout == torch.strided:
            if value.numel() and value.dtype != torch.bool and not value.is_inference():
                with torch.no_grad():
                    _last_bit(value)
            return


def swallow_errors(step: Step, names: dict[str, Any]) -> None:
    """Nothing is altered: the errors of the steps are lost, see Side.run."""


CONTROLS = {"bits": break_results}

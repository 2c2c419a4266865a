"""The requirements of a verification."""

from __future__ import annotations

import torch

from flagos.processes.pool import Report
from torch_fl.flaggems import implementations, pack_in_use
from torch_fl_tools.comparing import tasks

_SECONDS = 120.0  # for the first use of the device


def require_usable() -> None:
    """Raise RuntimeError with advice."""
    found = implementations.registered()
    reason = implementations.why_unusable() if found else implementations.missing()
    if reason:
        raise RuntimeError(f"FlagGems cannot be used: {reason}")
    if pack_in_use.in_use() is not None:
        raise RuntimeError(
            f"{pack_in_use.PACK} is set, and its recordings would be verified instead of FlagGems' kernels: unset it"
        )


def require_device() -> None:
    """Raise RuntimeError if a process forked now cannot use the device, so that none could."""

    def answers(_: str, __: Report) -> str:
        try:
            return str(torch.ones(2, device="flagos").sum().item())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    (one,) = tasks.run(["a first sum"], answers, 1, _SECONDS)
    if one.result != "2.0":
        raise RuntimeError(f"a forked process cannot use the device: {one.failure or one.result}")

"""Whether calls of Python implementations are recorded, and checked when they are repeated."""

from __future__ import annotations

import os
from functools import cache

import torch

from torch_fl.native import native
from torch_fl.python_kernels import capture


def enabled() -> bool:
    """Whether calls are recorded: where the core repeats launches, with CPython 3.12 or newer, unless `FLAGOS_REPLAY`
    is off.
    """
    _verify_from_the_start()
    wanted = os.environ.get("FLAGOS_REPLAY", "1").lower() not in ("0", "false", "off", "no")
    return wanted and capture.SUPPORTED and native().repeats_launches


@cache
def _verify_from_the_start() -> None:
    every = os.environ.get("FLAGOS_VERIFY_REPLAYS")
    if every:
        verify(int(every))


def verify(every: int) -> None:
    """Compare one replay in `every` (0: none) with a call of the implementation, bit for bit.

    A difference raises RuntimeError. `FLAGOS_VERIFY_REPLAYS` sets the initial value.
    """
    torch.ops.flagos.verify_replays(every)

"""The seeds of a run of `flagos bisect`."""

from __future__ import annotations

import random
import sys

import torch


def fix(seed: int) -> None:
    """Seed torch, random and numpy before the program begins, which may seed them again."""
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)

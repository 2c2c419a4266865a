"""Tasks that compute with torch in processes of their own, each on one thread of the processor."""

from __future__ import annotations

from functools import partial

import torch

from flagos.processes import pool


def _one_thread() -> None:
    torch.set_num_threads(1)


run = partial(pool.run, prepare=_one_thread)

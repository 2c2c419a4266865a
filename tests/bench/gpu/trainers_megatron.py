"""A rank of `tests.bench.gpu.trainers`: Megatron-LM-FL's own `pretrain_gpt.py`, whose training steps take turns."""

from __future__ import annotations

import faulthandler
import os
import runpy
import sys
from typing import Any

import torch

from tests.bench.gpu.turns import Recorder


def main() -> None:
    """Runs the program of the first argument with the arguments after the second, which is the limit in seconds."""
    program, limit, *arguments = sys.argv[1:]
    faulthandler.dump_traceback_later(int(limit), exit=True)
    # Not by PYTHONPATH: the checkout has a package `tests` of its own.
    sys.path.insert(0, os.path.dirname(program))
    from megatron.training import training

    device: Any = torch.flagos if "FLAGOS_MEGATRON" in os.environ else torch.cuda  # type: ignore[attr-defined]
    original = training.train_step
    recorder = Recorder(lambda: device.synchronize())

    def train_step(*given: Any, **named: Any) -> Any:
        return recorder.step(
            lambda: original(*given, **named), lambda made: made[0]["lm loss"].item()
        )

    training.train_step = train_step
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
    recorder.report(device.max_memory_allocated())


if __name__ == "__main__":
    main()

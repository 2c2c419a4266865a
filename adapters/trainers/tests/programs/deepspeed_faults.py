"""Trains with ZeRO 2, saves, and then meets a fault: ``torchrun ... deepspeed_faults.py FOLDER WHAT``.

``train`` saves after the second of four steps. ``resume`` loads that and goes on. The others load it, and fail:
``killed`` is a rank that dies in a step, ``full`` files that may not grow, as on a full disk, ``ranks`` a number of
ranks that the checkpoint does not have, ``kernel`` an option that needs a CUDA kernel of DeepSpeed, ``operator`` a
rank that has no kernel for an operator of torch.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

import deepspeed
import deepspeed_cases as cases
import torch

import flagos


def main() -> None:
    """Runs one part."""
    folder, what = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="flagos")
    rank, words = torch.distributed.get_rank(), ["2"]
    engine = cases.engine_of("2", folder)
    if what == "train":
        losses = cases.train(engine, range(2), words)
        engine.save_checkpoint(folder / "checkpoints")
        losses += cases.train(engine, range(2, 4), words)
    else:
        path, _ = engine.load_checkpoint(folder / "checkpoints")
        assert path is not None
        if what == "kernel":
            from deepspeed.ops.op_builder import QuantizerBuilder

            QuantizerBuilder().load()
        if what == "operator" and rank == 1:
            flagos.set_route("aten::gelu", "vendor:cuda")
        if what == "killed" and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        losses = cases.train(engine, range(2, 4), words)
        if what == "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
            engine.save_checkpoint(folder / "checkpoints", tag="second")
    if rank == 0:
        print("RESULT " + json.dumps({"case": what, "losses": losses}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

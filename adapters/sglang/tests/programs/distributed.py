"""Weights that another process of a group sends: ``distributed.py FOLDER OTHER OPTIONS``."""

from __future__ import annotations

import json
import socket
import sys
import threading
from datetime import timedelta

import serving
import tiny

GROUP = "trainer"


def send(port: int, backend: str, weights: list[tuple[str, object]]) -> None:
    """The trainer's end of the group."""
    import torch
    from sglang.srt.utils.common import init_custom_process_group

    group = init_custom_process_group(
        backend=backend,
        init_method=f"tcp://127.0.0.1:{port}",
        world_size=2,
        rank=0,
        group_name=GROUP,
        timeout=timedelta(minutes=2),
    )
    for _, tensor in weights:
        torch.distributed.broadcast(tensor.to("flagos:1"), src=0, group=group)  # type: ignore[attr-defined]
    torch.accelerator.synchronize()


if __name__ == "__main__":
    import weights as files

    folder, other, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    made = serving.engine(folder, **options)
    with socket.socket() as listener:  # any port that is free
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    prompts = tiny.prompts()
    found = {"first": serving.tokens(made, prompts)}
    new = files.weights(other)
    sender = threading.Thread(target=send, args=(port, "flagos", new))
    sender.start()
    found["joined"] = made.init_weights_update_group(
        "127.0.0.1", port, 1, 2, GROUP, backend="flagos"
    )
    names, tensors = zip(*new, strict=True)
    with serving.new_weights(made):
        found["answer"] = made.update_weights_from_distributed(
            list(names), [str(t.dtype).removeprefix("torch.") for t in tensors],
            [list(t.shape) for t in tensors], group_name=GROUP,
        )  # fmt: skip
    sender.join()
    found["updated"] = serving.tokens(made, prompts)
    serving.report(made, **found)

"""Reads a file into tensors of the device with DeepSpeed's asynchronous files: ``deepspeed_files.py FOLDER [own]``.

With ``own`` the handle is DeepSpeed's own, not the accelerator's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.op_builder.cpu import AsyncIOBuilder

SIZE = 8192


def found(folder: Path, own: bool) -> dict[str, Any]:
    """What each call returned, and which tensors had the bytes of the file after it, among others."""
    device = get_accelerator().device_name()
    name, written, content = str(folder / "read"), str(folder / "written"), os.urandom(SIZE)
    Path(name).write_bytes(content)
    wanted = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    several = [torch.zeros(64, SIZE // 64, dtype=torch.uint8, device=device) for _ in range(7)]
    missed, host = torch.ones_like(several[0]), torch.zeros(SIZE, dtype=torch.uint8)
    half = torch.zeros(SIZE // 8, dtype=torch.int32, device=device)
    builder = AsyncIOBuilder() if own else get_accelerator().create_op_builder("AsyncIOBuilder")
    handle = builder.load().aio_handle(1024, 2, False, False, 2)
    calls: list[Callable[[], int]] = [
        lambda: handle.async_pread(several[0], name, 0),
        lambda: handle.async_pread(several[1], name, 0),
        lambda: handle.wait(),
        lambda: handle.async_pread(several[2], name, 0),
        lambda: handle.async_pread(missed, str(folder / "missing"), 0),
        # Each call that waits, waits for the one before it, too.
        lambda: handle.sync_pread(several[3], name, 0),
        lambda: handle.pread(several[4], name, False, True, 0),
        lambda: handle.sync_pwrite(wanted.to(device), written, 0),
        lambda: handle.async_pread(several[5], name, 0),
        lambda: handle.pwrite(wanted.to(device), written, False, False, 0),
        lambda: handle.async_pread(several[6], name, 0),
        lambda: handle.pread(host, name, False, False, 0),
    ]
    returned, filled = [], []
    for call in calls:
        returned.append(call())
        filled.append(
            [n for n, one in enumerate(several) if torch.equal(one.cpu().flatten(), wanted)]
        )
    # What is read again must not come from an earlier read.
    several[0].zero_()
    returned.append(handle.sync_pread(half, name, SIZE // 2))
    return {
        "case": "files",
        "device": str(several[0].device),
        "returned": returned,
        "filled": filled,
        "host": torch.equal(host, wanted),
        "half": torch.equal(half.cpu().view(torch.uint8), wanted[SIZE // 2 :]),
        "left": [bool(missed.eq(1).all()), not bool(several[0].any())],
        "written": Path(written).read_bytes() == content,
    }


if __name__ == "__main__":
    print("RESULT " + json.dumps(found(Path(sys.argv[1]), "own" in sys.argv[2:])), flush=True)

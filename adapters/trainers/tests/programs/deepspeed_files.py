"""Reads a file into tensors of the device with DeepSpeed's asynchronous files: ``deepspeed_files.py FOLDER``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.op_builder import AsyncIOBuilder

SIZE = 8192


def main() -> None:
    """Prints which reads gave the bytes of the file, and what the calls returned."""
    folder, device = Path(sys.argv[1]), get_accelerator().device_name()
    name, written, content = str(folder / "read"), str(folder / "written"), os.urandom(SIZE)
    Path(name).write_bytes(content)
    wanted = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    handle = AsyncIOBuilder().load().aio_handle(1024, 2, False, False, 2)
    several = [torch.zeros(64, SIZE // 64, dtype=torch.uint8, device=device) for _ in range(4)]
    returned = [handle.async_pread(several[0], name, 0), handle.async_pread(several[1], name, 0)]
    returned += [handle.wait(), handle.async_pread(several[2], name, 0)]
    returned += [
        handle.async_pread(torch.zeros_like(several[3]), str(folder / "missing"), 0),
        # It waits for the third, too.
        handle.sync_pread(several[3], name, 0),
        handle.sync_pwrite(wanted.to(device), written, 0),
    ]
    found = {
        "case": "files",
        "device": str(several[0].device),
        "returned": returned,
        "equal": [torch.equal(one.cpu().flatten(), wanted) for one in several],
        "written": Path(written).read_bytes() == content,
    }
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

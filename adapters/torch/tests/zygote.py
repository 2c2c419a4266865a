"""A process that has imported torch, and forks ranks of it: importing torch takes longer than most tests.

Reads one JSON request a line: program, arguments, ranks, timeout, environment. Answers with the status and
the output of every rank. As under torchrun the store of the ranks is a process of its own, which outlives them;
its number is in STORE_PROCESS.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

PR_SET_PDEATHSIG = 1


@contextmanager
def store() -> Iterator[dict[str, str]]:
    """What tells ranks of a store that is there for the time of the context."""
    answer, told = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            os.write(told, str(served.port).encode())
            os.close(told)
            signal.pause()
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(told)
    try:
        with os.fdopen(answer) as file:
            port = file.read()
        if not port:
            raise RuntimeError("the store did not start")
        yield {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "STORE_PROCESS": str(child),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def rank_process(request: dict[str, Any], rank: int, output: int) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ |= request["environment"]
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        sys.argv = [request["program"], *request["arguments"]]
        runpy.run_path(request["program"], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve(request: dict[str, Any]) -> list[tuple[int, str]]:
    with store() as place, tempfile.TemporaryDirectory() as folder:
        request["environment"] |= place
        files = [open(f"{folder}/{rank}", "w+b") for rank in range(request["ranks"])]  # noqa: SIM115
        children = [rank_process(request, rank, file.fileno()) for rank, file in enumerate(files)]
        deadline = time.monotonic() + request["timeout"]
        ends: dict[int, int] = {}
        while len(ends) < len(children):
            for child in set(children) - ends.keys():
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    ends[child] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        result = []
        for child, file in zip(children, files, strict=True):
            file.seek(0)
            result.append((ends[child], file.read().decode(errors="replace")))
            file.close()
        return result


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

"""A process that has imported torch, and forks ranks of it: importing torch takes longer than most tests.

Reads one JSON request a line: program, arguments, ranks, timeout, environment. Answers with the status and
the output of every rank.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

import torch  # noqa: F401


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
    with tempfile.TemporaryDirectory() as folder:
        files = [open(f"{folder}/{rank}", "w+b") for rank in range(request["ranks"])]  # noqa: SIM115
        children = [rank_process(request, rank, file.fileno()) for rank, file in enumerate(files)]
        deadline = time.monotonic() + request["timeout"]
        ends: dict[int, int] = {}
        while len(ends) < len(children):
            child, status = os.waitpid(-1, os.WNOHANG)
            if child in children:
                ends[child] = os.waitstatus_to_exitcode(status)
            elif child == 0:
                if time.monotonic() > deadline:
                    for late in set(children) - ends.keys():
                        os.kill(late, signal.SIGKILL)
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

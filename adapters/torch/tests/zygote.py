"""A process that has imported torch, and forks others: importing torch takes longer than most tests.

Reads one JSON request a line. `zygote.py programs` has imported what programs of `ranks/` use. A request (program,
arguments, ranks, timeout, environment) is run once a rank, with the rank's number for `{rank}` in values of the
environment, and answered with the status and the output of every rank. As under torchrun the store of the ranks is a
process of its own, which outlives them; its number is in STORE_PROCESS. `zygote.py scripts` has imported torch, but
no backend. A request (script, timeout, environment: all of it) is run like `python -c`, and answered with its status
and what it wrote to standard output and standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import selectors
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1" if sys.argv[1:] == ["programs"] else "0"

import torch
import torch.distributed as dist

RUNS_PROGRAMS = os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD") == "1"

# Modules that the programs, or torch at first use, import: most of the time of a rank. Not where one might open
# NVIDIA's driver, which does not survive a fork.
if RUNS_PROGRAMS and not os.path.exists("/dev/nvidiactl"):
    import fsspec.implementations.local  # noqa: F401
    import pytest  # noqa: F401
    import torch._dynamo
    import torch.distributed._functional_collectives
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel

PR_SET_PDEATHSIG = 1


@contextmanager
def store() -> Iterator[dict[str, str]]:
    """The variables that tell ranks of a store, which lives for the time of the context."""
    answer, report = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            os.write(report, str(served.port).encode())
            os.close(report)
            signal.pause()
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(report)
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
        variables = request["environment"].items()
        os.environ |= {name: value.replace("{rank}", str(rank)) for name, value in variables}
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


def wait_for(children: list[int], timeout: float) -> dict[int, int]:
    """The status of every child, -9 of those that still ran after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    ends: dict[int, int] = {}
    with selectors.DefaultSelector() as running:
        for child in children:
            running.register(os.pidfd_open(child), selectors.EVENT_READ, child)
        while running.get_map():
            left = deadline - time.monotonic()
            ended = running.select(max(left, 0)) if left > 0 else []
            if not ended:
                for key in running.get_map().values():
                    os.kill(key.data, signal.SIGKILL)
                ended = running.select()
            for key, _ in ended:
                running.unregister(key.fileobj)
                os.close(key.fd)
                ends[key.data] = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
    return ends


def written(file: IO[bytes]) -> str:
    """The text that processes wrote into a file."""
    file.seek(0)
    return file.read().decode(errors="replace")


def serve(request: dict[str, Any]) -> list[tuple[int, str]]:
    with store() as place, ExitStack() as files:
        request["environment"] |= place
        outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in range(request["ranks"])]
        children = [rank_process(request, rank, it.fileno()) for rank, it in enumerate(outputs)]
        ends = wait_for(children, request["timeout"])
        return [(ends[child], written(it)) for child, it in zip(children, outputs, strict=True)]


def import_backends() -> None:
    """Registers the devices that are installed, as the import of torch does at its end."""
    if torch._is_device_backend_autoload_enabled():
        torch._import_device_backends()


def become_interpreter(request: dict[str, Any], output: IO[bytes], errors: IO[bytes]) -> str:
    """Gives the child all that `python -c` would find; returns the script."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["-c"]
    search = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = ["", *filter(None, search)]
    sys.modules["__main__"] = types.ModuleType("__main__")
    import_backends()
    return str(request["script"])


def main() -> str | None:
    """Serves; returns in children only, with the script to run. The rest of the child's life is that script's."""
    answers = os.fdopen(os.dup(1), "w")
    while line := sys.stdin.readline():
        request = json.loads(line)
        if RUNS_PROGRAMS:
            print(json.dumps(serve(request)), file=answers, flush=True)
            continue
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                return become_interpreter(request, output, errors)
            (status,) = wait_for([child], request["timeout"]).values()
            answer = [status, written(output), written(errors)]
            print(json.dumps(answer), file=answers, flush=True)
    return None


if __name__ == "__main__":
    script = main()
    if script is not None:
        exec(compile(script, "<string>", "exec"), sys.modules["__main__"].__dict__)

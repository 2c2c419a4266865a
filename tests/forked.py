"""Programs in interpreters of their own, which have torch already: importing it takes longer than most tests.

The first call starts a process that imports torch and nothing else. Each program runs in a fork of it, with an
environment, a module path and a folder as a new interpreter would have them. What is about the import of
torch itself needs a real one.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def run_forked(
    program: str | Path,
    environment: Mapping[str, str],
    *,
    cwd: str | Path = "/",
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Runs a program, text or a file, and returns its status and what it wrote.

    Raises subprocess.TimeoutExpired when it had to be killed.
    """
    server = _server()
    request = {
        "file" if isinstance(program, Path) else "text": str(program),
        "environment": dict(environment),
        "cwd": str(cwd),
        "timeout": timeout,
    }
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    status, out, err = json.loads(server.stdout.readline())
    if status is None:
        raise subprocess.TimeoutExpired(str(program), timeout, out, err)
    return subprocess.CompletedProcess([str(program)], status, out, err)


@cache
def _server() -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FLAGOS_", "TE_FL_", "TEFL_", "PYTHONPATH"))
    }
    return subprocess.Popen(
        [sys.executable, __file__],
        env={**environment, _AUTOLOAD: "0"},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# ------------------------------------------------------------------------------------- in the server


def _become(request: dict[str, Any]) -> None:
    """Does what an interpreter does before it runs a program."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # Python puts the folder of the script first: that of this file.
    search = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [*filter(None, search)]
    if os.environ.get(_AUTOLOAD, "1") == "1":
        import torch

        torch._import_device_backends()


def _run(request: dict[str, Any]) -> None:
    if "file" in request:
        sys.argv = [request["file"]]
        sys.path.insert(0, str(Path(request["file"]).parent))
        runpy.run_path(request["file"], run_name="__main__")
        return
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    exec(compile(request["text"], "<string>", "exec"), module.__dict__)


def _child(request: dict[str, Any], out: int, err: int) -> int:
    """The status of the program."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    status = 0
    try:
        _become(request)
        _run(request)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _serve(request: dict[str, Any]) -> tuple[int | None, str, str]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = _child(request, out.fileno(), err.fileno())
            finally:
                os._exit(status)
        end: int | None = None
        deadline = time.monotonic() + request["timeout"]
        while True:
            done, how = os.waitpid(child, os.WNOHANG)
            if done:
                end = os.waitstatus_to_exitcode(how)
                break
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(0.005)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return end, texts[0], texts[1]


def _main() -> None:
    import torch  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    _main()

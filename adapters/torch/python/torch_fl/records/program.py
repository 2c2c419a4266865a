"""Recording a program that does not know of it: what `flagos record` and its processes share.

The command names a folder in a variable. Every process that imports torch records to a file there: each distinct call
when it comes first, so that a process that is killed leaves them, and at the end what they count.
"""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path
from typing import Any

FOLDER = "FLAGOS_RECORD"
META = "FLAGOS_RECORD_META"

_begun: list[Any] = []


def begin() -> None:
    """Record the rest of this process, if a command wants it. Called at the end of torch's import."""
    folder = os.environ.get(FOLDER)
    if not folder or _begun:
        return
    from torch_fl.records import facts, files, recorder

    path = Path(folder) / f"{os.getpid()}.rec"
    first_calls = path.open("w")
    first_calls.write(json.dumps({"flagos_record": files.VERSION}) + "\n")
    owner = os.getpid()

    def found(call: facts.Call) -> None:
        if os.getpid() == owner:  # a fork has the file, too
            first_calls.write(json.dumps(facts.to_json(call)) + "\n")
            first_calls.flush()

    def end() -> None:
        if os.getpid() == owner:
            files.write(path, running.calls(), left_out=running.left_out)

    running = recorder.Recorder(found)
    _begun.append(recorder.entered(running, meta=os.environ.get(META) == "1"))
    atexit.register(end)

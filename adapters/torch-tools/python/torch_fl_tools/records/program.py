"""Recording a program that does not know of it: what `flagos record` and its processes share.

The command names a folder in a variable. Every process that imports torch, and every process that such a one forks,
records to a file of its own there: each distinct call when it comes first, so that a process that is killed leaves
them, and at the end what they count.
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TextIO

from torch_fl.tools import Tool

FOLDER = "FLAGOS_RECORD"
META = "FLAGOS_RECORD_META"


class Recorded(Tool):
    """Records the rest of the process."""

    def program_begins(self) -> None:
        """Begin the process's own file in the folder that the command names."""
        _Process(os.environ[FOLDER], meta=os.environ.get(META) == "1")


class _Process:
    """The recording of this process, and of each that it forks."""

    def __init__(self, folder: str, meta: bool) -> None:
        from torch_fl_tools.records import recorder

        self._folder, self._meta = folder, meta
        self._begin_file()
        self._recorder = recorder.Recorder(self._write_call)
        self._entered = recorder.entered(self._recorder, meta)
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._after_fork)
        # Forked children end so, those of multiprocessing too: what is registered with atexit does not run then.
        self._exit = os._exit
        setattr(os, "_exit", self._end_and_exit)  # noqa: B010

    def _begin_file(self) -> None:
        from torch_fl_tools.records import files

        # A process may have the number of one that has ended, or be another program by os.exec.
        handle, self._path = tempfile.mkstemp(".rec", f"{os.getpid()}-", self._folder)
        self._first_calls: TextIO = os.fdopen(handle, "w")
        self._owner = os.getpid()
        self._write({"flagos_record": files.VERSION})

    def _write(self, line: Mapping[str, object]) -> None:
        self._first_calls.write(json.dumps(line) + "\n")
        self._first_calls.flush()  # a fork shall have nothing of it

    def _write_call(self, call: Any) -> None:
        from torch_fl_tools.records import facts

        if os.getpid() == self._owner:  # or the process was forked, and no child of Python
            self._write(facts.to_json(call))

    def _after_fork(self) -> None:
        """Leaves the calls so far to the parent. The thread that forked is the child's first."""
        from torch_fl_tools.records import recorder

        self._recorder.forget()
        self._begin_file()
        if not self._recorder.is_entered():
            self._entered = recorder.entered(self._recorder, self._meta)

    def _end(self) -> None:
        from torch_fl_tools.records import files

        path = Path(self._path)
        if os.getpid() == self._owner and path.exists():  # the command may have ended before
            files.write(path, self._recorder.calls(), left_out=self._recorder.left_out)

    def _end_and_exit(self, status: int) -> NoReturn:
        try:
            self._end()
        finally:
            self._exit(status)

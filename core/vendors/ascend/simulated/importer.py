"""Another process that imports memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from core.vendors.ascend.simulated.library import Acl


def export(acl: Acl, block: int, flags: int = 1) -> bytes:
    """A key of 256 bytes of a block."""
    key = ctypes.create_string_buffer(65)
    acl.aclrtIpcMemGetExportKey(block, 256, key, 65, flags)
    return key.value


def _serve(acl: Acl, parent: Connection) -> None:
    """Imports by the first key, tells the code, fills the memory and closes it when told to, until "end"."""
    acl.start()
    key, out = parent.recv(), ctypes.c_void_p()
    code = acl.code("aclrtIpcMemImportByKey", ctypes.byref(out), key, 0)
    parent.send(code)
    # To read until "end" keeps the pipe open: who ended sooner would race with that word.
    while parent.recv() != "end":
        acl.aclrtMemsetAsync(out.value, 256, 7, 256, None)
        acl.aclrtSynchronizeDevice()
        acl.aclrtIpcMemClose(key)
        parent.send(acl.live("imported"))


@contextmanager
def importer(acl: Acl) -> Iterator[Connection]:
    """The connection to a child that was forked before either process used the device; `acl` is started."""
    ours, theirs = Pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ours.close()
            _serve(acl, theirs)
            status = 0
        finally:
            os._exit(status)
    theirs.close()
    acl.start()
    try:
        yield ours
    finally:
        ours.send("end")
        assert os.waitpid(child, 0)[1] == 0

"""The core's records in Python's ``logging``, below the logger ``flagos``.

Threads of the core never wait for Python: they push into a bounded queue (records that do not fit are
dropped and counted), and a short-lived thread started on demand hands the records to ``logging``.
``FLAGOS_LOG`` sets the level; when it is set and the program configured no logging, records go to
standard error.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import warnings

from flagos import _core

_BATCH = 256
_TRACE = 5  # below DEBUG; the same number as in the core
_LOGGER = logging.getLogger("flagos")
_flushing = threading.RLock()
_connected = False


def connect() -> None:
    """Starts handing records over. Idempotent, because every module of the public API calls it."""
    global _connected
    if _connected:
        return
    _connected = True
    directives = os.environ.get("FLAGOS_LOG", "").strip()
    if directives:
        _show(directives)
    _core.connect_logs(flush)
    os.register_at_fork(after_in_child=_after_fork)
    atexit.register(_disconnect)


def flush() -> None:
    """Hands over every waiting record, on the calling thread."""
    with _flushing:
        while records := _core.take_logs(_BATCH):
            for level, target, message in records:
                logger = logging.getLogger(_logger_name(target))
                if logger.isEnabledFor(level):
                    logger.log(level, "%s", message)
        dropped = _core.take_dropped_logs()
        if dropped:
            _LOGGER.warning("%d log records were dropped because the queue was full", dropped)


def _show(directives: str) -> None:
    try:
        _core.set_log_level(directives)
    except _core.ConfigError as error:
        # A warning only, so that the import succeeds: the first use of the device raises the same error.
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        return
    # The core filters already, so the logger must let all its records through.
    _LOGGER.setLevel(_TRACE)
    if not _LOGGER.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[%(name)s %(levelname)s] %(message)s"))
        _LOGGER.addHandler(handler)


def _logger_name(target: str) -> str:
    """``flagos_core::runtime::host`` becomes ``flagos.runtime.host``."""
    head, _, tail = target.partition("::")
    head = "flagos" if head in ("flagos_core", "_core") else head
    name = f"{head}::{tail}" if tail else head
    name = name.replace("::", ".")
    return name if name.split(".")[0] == "flagos" else f"flagos.{name}"


def _after_fork() -> None:
    global _flushing
    _flushing = threading.RLock()  # a thread the child does not have may have held the old one
    _core.forget_logs()


def _disconnect() -> None:
    # Before finalisation: a native thread must not call into an interpreter that is going away.
    _core.disconnect_logs()
    flush()

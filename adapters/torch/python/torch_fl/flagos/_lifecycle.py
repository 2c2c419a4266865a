"""Initialisation of the device: lazy, once per process, and never in a forked child."""

from __future__ import annotations

import os
import threading

# Imported here and not at first use, where a signal handler that uses the device could interrupt the import.
from flagos import _core, logs, plan_listeners
from torch_fl.flagos import automatic, queue
from torch_fl.native import native

# Reentrant: a signal handler or a finalizer of the thread that initialises may use the device.
_lock = threading.RLock()
_initialized = False
_in_bad_fork = False


def init() -> None:
    """Read the configuration, resolve the plan and open the devices. Idempotent.

    Never needed: the first use of a flagos device does it. It is the place to catch a mistake in
    the configuration early. Raises flagos.ConfigError, flagos.DeviceError or flagos.ForkedError.
    """
    _lazy_init()


def is_initialized() -> bool:
    """True once a device has been used in this process (and this process was not forked since)."""
    return _initialized and not _in_bad_fork


def _is_in_bad_fork() -> bool:
    return _in_bad_fork


def _lazy_init() -> None:
    """Called by torch before anything that names a flagos device reaches the dispatcher."""
    global _initialized
    if _initialized and not _in_bad_fork:
        return
    with _lock:
        if _in_bad_fork:
            raise _core.ForkedError(
                "flagos cannot be used in a process forked after the device was first used; "
                "start it with the 'spawn' or 'forkserver' method of multiprocessing"
            )
        if not _initialized:
            logs.connect()  # for programs that never import flagos themselves
            _core.init()
            native().initialize()
            _initialized = True
            try:
                plan_listeners.published()
                if _core.graphs()[0]:
                    automatic.turn(True)
                if _core.queue()[0]:
                    queue.turn(True)
            except Exception:
                _initialized = False
                raise


def _after_fork_in_child() -> None:
    global _in_bad_fork, _lock
    _in_bad_fork = _in_bad_fork or _initialized
    _lock = threading.RLock()  # a new one: another thread of the parent may hold the old one


os.register_at_fork(after_in_child=_after_fork_in_child)

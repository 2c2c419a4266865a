"""TransformerEngine-FL's log lines: ``[TE-FL manager.py:133 INFO] Registered impl_ids: [...]``.

The lines go to standard output, as TransformerEngine-FL's do. ``TEFL_LOG_LEVEL`` is the lowest level
written.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TextIO

from te_fl.core.native import native as _native

_FORMAT = "[%(name)s %(filename)s:%(lineno)d %(levelname)s] %(message)s"


class _StandardOutput(logging.StreamHandler[TextIO]):
    """A handler that writes to the current ``sys.stdout``, also after a program has replaced it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stdout

    @stream.setter
    def stream(self, value: TextIO) -> None:
        raise AttributeError("the stream is sys.stdout")


class Logger:
    """A logger with the methods of TransformerEngine-FL's ``Logger``."""

    def __init__(self, name: str, level: int | str = logging.INFO) -> None:
        self.logger = logging.getLogger(name)
        self.logger.setLevel(level)
        self.logger.propagate = False
        for handler in list(self.logger.handlers):
            self.logger.removeHandler(handler)
        handler = _StandardOutput()
        handler.setFormatter(logging.Formatter(_FORMAT))
        self.logger.addHandler(handler)
        self._printed_once: set[str] = set()

    def _first(self, message: str) -> bool:
        if message in self._printed_once:
            return False
        self._printed_once.add(message)
        return True

    def debug(self, message: str) -> None:
        self.logger.debug(message, stacklevel=2)

    def info(self, message: str) -> None:
        self.logger.info(message, stacklevel=2)

    def warning(self, message: str) -> None:
        self.logger.warning(message, stacklevel=2)

    def error(self, message: str) -> None:
        self.logger.error(message, stacklevel=2)

    def critical(self, message: str) -> None:
        self.logger.critical(message, stacklevel=2)

    def debug_once(self, message: str) -> None:
        if self._first(message):
            self.logger.debug(message, stacklevel=2)

    def info_once(self, message: str) -> None:
        if self._first(message):
            self.logger.info(message, stacklevel=2)

    def warning_once(self, message: str) -> None:
        if self._first(message):
            self.logger.warning(message, stacklevel=2)

    def error_once(self, message: str) -> None:
        if self._first(message):
            self.logger.error(message, stacklevel=2)


class LoggerManager:
    """Holder of the process-wide logger, which the first :meth:`get_logger` makes."""

    _instance: LoggerManager | None = None
    _lock = threading.RLock()

    def __init__(self) -> None:
        self._global_logger: Logger | None = None
        self._printed_once: set[str] = set()

    @classmethod
    def get_instance(cls) -> LoggerManager:
        with cls._lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def get_logger(self) -> Logger:
        if self._global_logger is None:
            level = _native.variables_now()["log_level"]
            self._global_logger = Logger("TE-FL", level)
        return self._global_logger

    def print_once(self, message: str) -> None:
        if message not in self._printed_once:
            self._printed_once.add(message)
            print(message)

    def reset(self) -> None:
        self._global_logger = None
        self._printed_once.clear()


def get_logger() -> Logger:
    """The logger ``TE-FL``. Raises :class:`flagos.ConfigError` when ``TEFL_LOG_LEVEL`` is not a level."""
    return LoggerManager.get_instance().get_logger()


def print_once(message: str) -> None:
    """Prints ``message``, unless it was printed before."""
    LoggerManager.get_instance().print_once(message)

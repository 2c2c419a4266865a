"""Texts of how code outside flagos ends: by exceptions, and processes by signals."""

from __future__ import annotations

import signal


def message_of(error: BaseException) -> str:
    """``str(error)``, and a stand-in for it when the exception's own ``__str__`` raises."""
    try:
        return str(error)
    except Exception as another:
        return f"<no text: its __str__ raises {type(another).__name__}>"


def described(error: BaseException) -> str:
    """The exception's type and text: ``ValueError: not a number``."""
    return f"{type(error).__name__}: {message_of(error)}"


def signal_name(status: int) -> str:
    """The signal that ended a process, by the negative status that ``subprocess`` gives, such as ``SIGKILL``."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"

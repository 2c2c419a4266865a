"""Texts of exceptions that code outside flagos raises."""

from __future__ import annotations


def message_of(error: BaseException) -> str:
    """``str(error)``, and a stand-in for it when the exception's own ``__str__`` raises."""
    try:
        return str(error)
    except Exception as another:
        return f"<no text: its __str__ raises {type(another).__name__}>"


def described(error: BaseException) -> str:
    """The exception's type and text: ``ValueError: not a number``."""
    return f"{type(error).__name__}: {message_of(error)}"

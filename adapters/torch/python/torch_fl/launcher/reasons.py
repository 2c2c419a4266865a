"""Counts launches that are left to Triton's and FlagGems' own code, with reasons."""

from __future__ import annotations

_kernels: dict[str, str] = {}
_not_installed: dict[str, str] = {}


class Unsupported(Exception):
    """A kernel or a call that has to be launched by Triton's own launcher; the message says why."""


def keep_kernel(name: str, reason: str) -> None:
    """Note that a kernel takes the original path."""
    _kernels[name] = reason


def kernels() -> dict[str, str]:
    """The kernels that take the original path, with the last reason of each."""
    return dict(_kernels)


def leave_alone(what: str, reason: str) -> None:
    """Note that a class is not replaced."""
    _not_installed[what] = reason


def take_over(what: str) -> None:
    """Note that a class is replaced after all."""
    _not_installed.pop(what, None)


def not_installed() -> dict[str, str]:
    """The classes that are not replaced, with the reason."""
    return dict(_not_installed)

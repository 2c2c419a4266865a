"""LightX2V on flagos: ``PLATFORM=flagos python -m lightx2v.infer ...``.

LightX2V finds this package through its entry points. When the package is on the path without being
installed, :func:`lightx2v_fl.activate` does the same.

Importing this package imports neither torch nor LightX2V.
"""

from __future__ import annotations

from lightx2v_fl._version import __version__
from lightx2v_fl.plugin import activate, register

__all__ = ["__version__", "activate", "register", "register_operators"]


def register_operators() -> None:
    """Registers the operators with the plan of this process, for ``flagos ops``. Imports torch."""
    from lightx2v_fl import operators  # noqa: F401  each is registered where it is declared

"""DeepSpeed and Megatron-LM-FL on flagos: ``DS_ACCELERATOR=flagos``, ``FLAGOS_MEGATRON=1``.

torch_fl finds this package by its entry points, and loads what a variable asks for. Importing it imports neither
torch nor a trainer.
"""

from __future__ import annotations

from flagos_trainers._version import __version__

__all__ = ["__version__", "register_operators"]


def register_operators() -> None:
    """Registers the operators with the plan of this process, for ``flagos ops``. Imports torch, but no trainer."""
    from flagos_trainers import operators  # noqa: F401  each is registered where it is declared

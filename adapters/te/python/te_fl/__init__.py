"""TransformerEngine's operators in the plan of flagos.

Three ways in, one registry behind them:

* ``te_fl.core`` is TransformerEngine-FL's plugin interface, complete without TransformerEngine.
* TransformerEngine-FL finds this package by its entry point, or by ``TE_FL_PLUGIN_MODULES=te_fl``.
* TransformerEngine from 2.20.2 on loads it with ``NVTE_PLUGIN=te_fl``.
"""

from __future__ import annotations

from typing import Any

from te_fl._version import __version__

__all__ = ["__version__", "load_plugins", "te_fl_register"]


def te_fl_register(registry: Any) -> None:
    """Registers this package's operators into a registry of TransformerEngine-FL, or of ``te_fl.core``.

    Called by their discovery. Doing it again changes nothing.
    """
    from te_fl import operators

    operators.register(registry)


def load_plugins() -> None:
    """Puts the plan between TransformerEngine and its native module. Called by TransformerEngine.

    Raises ImportError saying what to do when the native module is missing.
    """
    from te_fl import stock

    stock.load()

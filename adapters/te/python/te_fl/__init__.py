"""TransformerEngine's operators in the plan of flagos.

Three entry points share one registry:

* ``te_fl.core`` is TransformerEngine-FL's plugin interface, complete without TransformerEngine.
* TransformerEngine-FL finds this package by its entry point, or by ``TE_FL_PLUGIN_MODULES=te_fl``.
* TransformerEngine from 2.20.2 on loads it with ``NVTE_PLUGIN=te_fl``.
"""

from __future__ import annotations

from typing import Any

from te_fl._version import __version__

__all__ = ["__version__", "load_plugins", "register_operators", "te_fl_register"]


def te_fl_register(registry: Any) -> None:
    """Registers this package's operators into a registry of TransformerEngine-FL, or of ``te_fl.core``.

    TransformerEngine-FL's discovery calls it. A repeated call changes nothing.
    """
    from te_fl import registration

    registration.register(registry)


def load_plugins() -> None:
    """Puts the plan between TransformerEngine and its native module. TransformerEngine calls it.

    Raises ImportError, with a remedy, when the native module is missing.
    """
    from te_fl import stock

    stock.load()


def register_operators() -> None:
    """Registers every operator, plugins' included, with the plan of this process, for ``flagos ops``.

    Probes each implementation. Prints nothing.
    """
    import logging

    from te_fl.core import get_default_manager, get_logger

    logger = get_logger().logger
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    try:
        manager = get_default_manager()
        manager.ensure_initialized()
        for op in manager.registry.list_operators():
            manager.registry.probe(op)
    finally:
        logger.setLevel(level)

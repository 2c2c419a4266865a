"""Discovery of plugins: the entry points ``te_fl.plugin``, then the modules of ``TE_FL_PLUGIN_MODULES``.

An installed plugin that fails is logged and skipped, because the user did not name it. A module that the
variable names and that fails makes the initialisation fail. In both cases the plugin's registrations are
undone.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from flagos._core import ConfigError
from flagos.messages import described, message_of
from te_fl.core.logger_manager import get_logger
from te_fl.core.native import native as _native
from te_fl.core.registry import OpRegistry

PLUGIN_GROUP = "te_fl.plugin"
PLUGIN_MODULES_ENV = "TE_FL_PLUGIN_MODULES"

_discovered: list[tuple[str, str, bool]] = []


def _register_from(plugin: Any, registry: OpRegistry) -> bool:
    """Calls the register function of ``plugin``. Returns ``False`` when the plugin has none."""
    if callable(plugin) and not isinstance(plugin, type):
        register = plugin
    else:
        register = getattr(plugin, "te_fl_register", None) or getattr(plugin, "register", None)
    if not callable(register):
        return False
    with registry.undone_on_error():
        register(registry)
    return True


def discover_from_entry_points(registry: OpRegistry) -> int:
    """Loads the installed plugins and returns how many registered."""
    logger = get_logger()
    loaded = 0
    for entry in entry_points(group=PLUGIN_GROUP):
        try:
            ok = _register_from(entry.load(), registry)
            if not ok:
                logger.warning(f"Plugin entry_point:{entry.name} has no register function")
        # A plugin may raise any exception; the other plugins are still loaded.
        except Exception as error:
            logger.error(f"Error calling plugin entry_point:{entry.name}: {message_of(error)}")
            ok = False
        else:
            if ok:
                logger.debug(f"Registered plugin from entry_point:{entry.name}")
        _discovered.append((entry.name, "entry_point", ok))
        loaded += ok
    return loaded


def discover_from_env_modules(registry: OpRegistry) -> int:
    """Loads the modules of ``TE_FL_PLUGIN_MODULES`` and returns their number.

    Raises :class:`flagos.ConfigError` for a module that cannot be imported, lacks a register function, or
    fails.
    """
    logger = get_logger()
    names: list[str] = _native.variables_now()["plugin_modules"]
    for name in names:
        try:
            ok = _register_from(import_module(name), registry)
        except Exception as error:
            _discovered.append((name, "env_module", False))
            raise ConfigError(
                f"the plugin {name}, named by {PLUGIN_MODULES_ENV}, failed: "
                f"{described(error)}; correct it, or remove it from the variable"
            ) from error
        _discovered.append((name, "env_module", ok))
        if not ok:
            raise ConfigError(
                f"the plugin {name}, named by {PLUGIN_MODULES_ENV}, has neither "
                "te_fl_register(registry) nor register(registry)"
            )
        logger.info(f"Registered plugin from env_module:{name}")
    return len(names)


def discover_plugin(registry: OpRegistry) -> int:
    """Loads every plugin and returns how many registered."""
    return discover_from_entry_points(registry) + discover_from_env_modules(registry)


discover_op_plugin = discover_plugin


def get_discovered_plugin() -> list[tuple[str, str, bool]]:
    """Each plugin found: (name, ``entry_point`` or ``env_module``, whether it registered)."""
    return list(_discovered)


def clear_discovered_plugin() -> None:
    """Empties the list of :func:`get_discovered_plugin`, for tests."""
    _discovered.clear()

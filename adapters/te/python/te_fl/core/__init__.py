"""TransformerEngine-FL's plugin interface, on the registry and the plan of flagos.

A program written for ``transformer_engine.plugin.core`` runs with only the import line changed, and
without TransformerEngine:

    >>> from te_fl.core import BackendImplKind, OpImpl, OpManager, OpRegistry
"""

from flagos._core import UnsupportedError
from te_fl.core.discovery import (
    PLUGIN_GROUP,
    PLUGIN_MODULES_ENV,
    clear_discovered_plugin,
    discover_from_entry_points,
    discover_from_env_modules,
    discover_plugin,
    get_discovered_plugin,
)
from te_fl.core.logger_manager import Logger, LoggerManager, get_logger
from te_fl.core.manager import OpManager, get_default_manager, reset_default_manager
from te_fl.core.ops import (
    TEFLModule,
    get_manager,
    get_registry,
    get_tefl_module,
    reset_registry,
    reset_tefl_module,
)
from te_fl.core.policy import (
    PREFER_DEFAULT,
    PREFER_REFERENCE,
    PREFER_VENDOR,
    VALID_PREFER_VALUES,
    PolicyManager,
    SelectionPolicy,
    bump_policy_epoch,
    get_policy,
    get_policy_epoch,
    policy_context,
    policy_from_env,
    reset_global_policy,
    set_global_policy,
    with_allowed_vendors,
    with_denied_vendors,
    with_preference,
    with_strict_mode,
)
from te_fl.core.registry import OpRegistry, OpRegistrySnapshot
from te_fl.core.types import BackendImplKind, OpImpl, match_token

__all__ = [
    "PLUGIN_GROUP",
    "PLUGIN_MODULES_ENV",
    "PREFER_DEFAULT",
    "PREFER_REFERENCE",
    "PREFER_VENDOR",
    "VALID_PREFER_VALUES",
    "BackendImplKind",
    "Logger",
    "LoggerManager",
    "OpImpl",
    "OpManager",
    "OpRegistry",
    "OpRegistrySnapshot",
    "PolicyManager",
    "SelectionPolicy",
    "TEFLModule",
    "UnsupportedError",
    "bump_policy_epoch",
    "clear_discovered_plugin",
    "discover_from_entry_points",
    "discover_from_env_modules",
    "discover_plugin",
    "get_default_manager",
    "get_discovered_plugin",
    "get_logger",
    "get_manager",
    "get_policy",
    "get_policy_epoch",
    "get_registry",
    "get_tefl_module",
    "match_token",
    "policy_context",
    "policy_from_env",
    "reset_default_manager",
    "reset_global_policy",
    "reset_registry",
    "reset_tefl_module",
    "set_global_policy",
    "with_allowed_vendors",
    "with_denied_vendors",
    "with_preference",
    "with_strict_mode",
]

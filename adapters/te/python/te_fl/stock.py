"""The plugin of stock TransformerEngine, from 2.20.2 on: ``NVTE_PLUGIN=te_fl``.

TransformerEngine loads its native module, names it ``transformer_engine_torch_nv``, and calls
``load_plugins()`` of the plugin. From then on ``transformer_engine_torch`` is a module in which the plan
serves every known operator. The native functions are registered as implementations (:data:`IMPL_ID`);
attributes that are not operators come from the native module.
"""

from __future__ import annotations

import sys
from types import ModuleType

from te_fl.core.manager import OpManager, get_default_manager
from te_fl.core.native import native as _native
from te_fl.core.ops import TEFLModule
from te_fl.core.signatures import OPERATORS
from te_fl.core.types import BackendImplKind, OpImpl

NATIVE = "transformer_engine_torch_nv"
MODULE = "transformer_engine_torch"
#: TransformerEngine's own kernels in the plan, in the words of TransformerEngine-FL: their id, vendor and priority.
IMPL_ID = "vendor.cuda"
VENDOR = "cuda"
PRIORITY = 100


def load() -> ModuleType:
    """Puts the module of the plan in the place of ``transformer_engine_torch`` and returns it.

    A repeated call returns the same module.
    Raises ImportError when TransformerEngine has not loaded its native module.
    """
    native = sys.modules.get(NATIVE)
    if native is None:
        raise ImportError(
            f"{NATIVE} is not loaded: load_plugins() is called by TransformerEngine 2.20.2 or newer. "
            "Set NVTE_PLUGIN=te_fl and import transformer_engine.pytorch; if that fails to load its "
            "native library, `flagos doctor` says why. Without TransformerEngine, use te_fl.core"
        )
    module = sys.modules.get(MODULE)
    if module is not None and module.__dict__.get("__te_fl_native__") is native:
        return module
    manager = get_default_manager()
    manager.ensure_initialized()
    if not _native.variables_now()["skip_native"]:
        _offer(native, manager)
    module = TEFLModule(manager, native, MODULE)
    attributes = module.__dict__
    for op in OPERATORS:
        # Operators that only the native module serves are bound too: a plugin may register another later.
        if manager.registry.get_implementations(op):
            attributes[op] = manager.bound(op)
    for name in ("__file__", "__version__", "__spec__", "__loader__"):
        if hasattr(native, name):
            attributes[name] = getattr(native, name)
    attributes["__te_fl_native__"] = native
    sys.modules[MODULE] = module
    return module


def _offer(native: ModuleType, manager: OpManager) -> None:
    """Registers the native functions as implementations."""
    registry = manager.registry
    with registry.undone_on_error():
        for op in OPERATORS:
            function = getattr(native, op, None)
            if callable(function) and registry.get_implementation(op, IMPL_ID) is None:
                registry.register_impl(
                    OpImpl(op, IMPL_ID, BackendImplKind.VENDOR, function, VENDOR, PRIORITY)
                )

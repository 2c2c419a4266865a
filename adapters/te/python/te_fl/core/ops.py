"""``tex``: a module with the operators and TransformerEngine's enumerations as attributes.

>>> tex = get_tefl_module()
>>> y = tex.gelu(x, None)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from te_fl.core.enums import (
    ENUMERATIONS,
    CommGemmOverlapRole,
    CommOverlapAlgo,
    CommOverlapType,
    DType,
    Float8BlockScaleTensorFormat,
    FP8BwdTensors,
    FP8FwdTensors,
    NVTE_Activation_Type,
    NVTE_Bias_Type,
    NVTE_Fused_Attn_Backend,
    NVTE_Mask_Type,
    NVTE_QKV_Format,
    NVTE_QKV_Layout,
    NVTE_Softmax_Type,
)
from te_fl.core.manager import OpManager, get_default_manager, reset_default_manager
from te_fl.core.registry import OpRegistry

__all__ = [
    "CommGemmOverlapRole",
    "CommOverlapAlgo",
    "CommOverlapType",
    "DType",
    "FP8BwdTensors",
    "FP8FwdTensors",
    "FP8TensorMeta",
    "Float8BlockScaleTensorFormat",
    "NVTE_Activation_Type",
    "NVTE_Bias_Type",
    "NVTE_Fused_Attn_Backend",
    "NVTE_Mask_Type",
    "NVTE_QKV_Format",
    "NVTE_QKV_Layout",
    "NVTE_Softmax_Type",
    "TEFLModule",
    "get_manager",
    "get_registry",
    "get_tefl_module",
    "reset_registry",
    "reset_tefl_module",
]


class FP8TensorMeta:
    """Scales and amax history of a group of FP8 tensors: ``None`` until the caller assigns tensors."""

    def __init__(self) -> None:
        self.scale: Any = None
        self.scale_inv: Any = None
        self.amax_history: Any = None


class TEFLModule:
    """``TEFLModule(manager)`` returns a module with the operators of the manager as attributes.

    Other attributes come from ``native``. Operators registered later appear at their first use. The result
    is a plain ``ModuleType``, because the interpreter finds a module's attributes the fastest.
    """

    def __new__(  # type: ignore[misc]
        cls,
        manager: OpManager | None = None,
        native: ModuleType | None = None,
        name: str = "te_fl.tex",
    ) -> ModuleType:
        module = ModuleType(name, "TransformerEngine's operators, served by the plan of flagos.")
        chosen = manager if manager is not None else get_default_manager()
        attributes = module.__dict__
        if native is None:
            classes = (*ENUMERATIONS, FP8TensorMeta)
            attributes.update({cls.__name__: cls for cls in classes})
        else:
            names = [name for name in dir(native) if not name.startswith("__")]
            attributes.update({name: getattr(native, name) for name in names})
        chosen.ensure_initialized()
        operators = chosen.registry.list_operators()
        attributes.update({op: chosen.bound(op) for op in operators})
        attributes["__getattr__"] = _late_attributes(module, chosen, native)
        attributes["__dir__"] = lambda: sorted({*attributes, *chosen.registry.list_operators()})
        return module


def _late_attributes(
    module: ModuleType, manager: OpManager, native: ModuleType | None
) -> Callable[[str], Any]:
    """The module's ``__getattr__``: finds operators and native attributes added after its creation."""

    def find(name: str) -> Any:
        operators = [] if name.startswith("_") else manager.registry.list_operators()
        if name in operators:
            op = manager.bound(name)
            setattr(module, name, op)
            return op
        if native is not None and hasattr(native, name):
            return getattr(native, name)
        near = get_close_matches(name, operators, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {module.__name__!r} has no operator {name!r}{hint}")

    return find


def _flash_attention(manager: OpManager) -> Callable[..., Any]:
    def flash_attention(*args: Any, **kwargs: Any) -> Any:
        """An instance of the attention class that the plan chooses."""
        return manager.call("get_flash_attention_class")(*args, **kwargs)

    return flash_attention


_module: ModuleType | None = None
_lock = threading.RLock()


def get_tefl_module() -> ModuleType:
    """The module of the default manager, made by the first call."""
    global _module
    with _lock:
        if _module is None:
            manager = get_default_manager()
            _module = TEFLModule(manager)
            _module.__dict__["flash_attention"] = _flash_attention(manager)
        return _module


def reset_tefl_module() -> None:
    """Makes the next :func:`get_tefl_module` return a new module."""
    global _module
    with _lock:
        _module = None


def get_manager() -> OpManager:
    """The manager of the process."""
    return get_default_manager()


def get_registry() -> OpRegistry:
    """The registry of the process."""
    return get_default_manager().registry


def reset_registry() -> None:
    """Makes later calls return a new manager, registry and module."""
    reset_default_manager()
    reset_tefl_module()

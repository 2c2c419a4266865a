"""Registration of the operators of this package and of their plain formulas."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from te_fl import operators, reference


def register(registry: Any) -> None:
    """Registers every operator, and its plain formula, with a registry of this package or of TransformerEngine-FL.

    Implementations registered before under the same id are left unchanged: the references of
    TransformerEngine-FL have the id of :mod:`te_fl.reference`, and stay.
    """
    types = _types_of(registry)
    kinds = types.BackendImplKind
    for impl_id, kind, priority, functions in (
        (operators.IMPL_ID, kinds.DEFAULT, operators.PRIORITY, operators.OPERATORS),
        (reference.IMPL_ID, kinds.REFERENCE, reference.PRIORITY, reference.OPERATORS),
    ):
        for name, function in {**functions, **operators.QUESTIONS}.items():
            if registry.get_implementation(name, impl_id) is None:
                registry.register_impl(
                    types.OpImpl(
                        op_name=name, impl_id=impl_id, kind=kind, fn=function, priority=priority
                    )
                )


def _types_of(registry: Any) -> Any:
    """The module ``types`` of the registry's package: a registry expects instances of its own classes."""
    package = type(registry).__module__.rpartition(".")[0]
    return import_module(f"{package}.types")

"""What this package itself offers."""

from __future__ import annotations

from te_fl.core.registry import OpRegistry


def register_builtins(registry: OpRegistry) -> None:
    """Registers the operators of this package; those that are registered already stay as they are."""
    from te_fl import operators

    operators.register(registry)

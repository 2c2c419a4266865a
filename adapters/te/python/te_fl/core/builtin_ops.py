"""Registration of this package's own operators."""

from __future__ import annotations

from te_fl.core.registry import OpRegistry


def register_builtins(registry: OpRegistry) -> None:
    """Registers the operators of this package. Operators registered before are left unchanged."""
    from te_fl import registration

    registration.register(registry)

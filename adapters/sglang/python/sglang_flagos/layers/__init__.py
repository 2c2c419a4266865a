"""SGLang's layers that compute by operators of the plan; all others do by SGLang's own torch code."""

from sglang_flagos.layers import activation, experts, norm, rotary


def register() -> None:
    """Registers them by ``register_oot_forward``."""
    for layer in (norm, activation, rotary, experts):
        layer.register()

"""vLLM's layers over operators of the plan, by the hooks that vLLM has for them."""

from __future__ import annotations

from functools import cache


@cache
def register() -> None:
    """Registers every layer with vLLM, once a process, before a model is made."""
    from vllm_flagos.layers import activation, encoders, experts, fp8, gated, gated_norm, rotary

    for layer in (activation, rotary, encoders, gated_norm, experts, fp8, gated):
        layer.register()


@cache
def register_with_states() -> None:
    """Registers layers that models with states alone have, once a process."""
    from vllm_flagos.layers import gated_norm

    gated_norm.register_state_spaces()


@cache
def register_integers() -> None:
    """Registers the layers with weights of integers, once a process: few models have such, and they import much."""
    from vllm_flagos.layers import integers

    integers.register()


@cache
def register_adapters_of_experts() -> None:
    """Registers adapters of experts, once a process."""
    from vllm_flagos.layers import adapted_experts

    adapted_experts.register()

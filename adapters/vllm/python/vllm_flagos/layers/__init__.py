"""vLLM's layers over operators of the plan, by the hooks that vLLM has for them."""

from __future__ import annotations

from functools import cache


@cache
def register() -> None:
    """Registers every layer with vLLM, once a process, before a model is made."""
    from vllm_flagos.layers import activation, experts, fp8, gated, rotary

    for layer in (activation, rotary, experts, fp8, gated):
        layer.register()


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

"""vLLM's layers over operators of the plan, by the hooks that vLLM has for them."""

from __future__ import annotations

from functools import cache


@cache
def register() -> None:
    """Registers every layer with vLLM, once a process, before a model is made."""
    from vllm_flagos.layers import activation, experts, fp8, gated, rotary

    for layer in (activation, rotary, experts, fp8, gated):
        layer.register()

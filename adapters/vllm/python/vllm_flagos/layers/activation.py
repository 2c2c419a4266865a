"""Activations over vLLM's operators ``_C::*``."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers import activation

# Layer → its operator. vLLM's layer calls the attribute `op`, which it only sets on platforms of its own.
LAYERS = {
    "FatreluAndMul": "fatrelu_and_mul",
    "SiluAndMul": "silu_and_mul",
    "SiluAndMulWithClamp": "silu_and_mul_with_clamp",
    "MulAndSilu": "mul_and_silu",
    "GeluAndMul": "gelu_and_mul",
    "SwigluOAIAndMul": "swigluoai_and_mul",
    "NewGELU": "gelu_new",
    "FastGELU": "gelu_fast",
    "QuickGELU": "gelu_quick",
    "ReLUSquaredActivation": "relu_squared",
}


def register() -> None:
    """Lets each layer call its operator."""
    for name, operator in LAYERS.items():
        _register(getattr(activation, name), operator)


def _register(layer: Any, operator: str) -> None:
    class Served(layer):
        op = getattr(torch.ops._C, operator)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if getattr(self, "approximate", "none") == "tanh":
                self.op = torch.ops._C.gelu_tanh_and_mul

        def forward_oot(self, x: torch.Tensor) -> Any:
            return self.forward_cuda(x)

    Served.__name__ = Served.__qualname__ = layer.__name__
    own = layer.name
    layer.register_oot(Served)
    Served.name = own  # which the option custom_ops names

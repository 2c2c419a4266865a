"""Gated activations over ``sglang::silu_and_mul``, ``sglang::gelu_and_mul`` and ``sglang::gelu_tanh_and_mul``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.layers.activation import GeluAndMul, SiluAndMul
from torch import Tensor

from flagos import Operator
from sglang_flagos import operators
from sglang_flagos.layers.norm import KEY


def _by(operator: Callable[[Any], Operator]) -> Callable[[Any, Tensor], Tensor]:
    def forward(self: Any, x: Tensor) -> Tensor:
        out = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
        operator(self)(out, x)
        return out

    return forward


def _of_gelu(self: Any) -> Operator:
    return operators.gelu_tanh_and_mul if self.approximate == "tanh" else operators.gelu_and_mul


def register() -> None:
    """Lets the layers call the operators."""
    SiluAndMul.register_oot_forward(SiluAndMul, _by(lambda self: operators.silu_and_mul), KEY)
    GeluAndMul.register_oot_forward(GeluAndMul, _by(_of_gelu), KEY)

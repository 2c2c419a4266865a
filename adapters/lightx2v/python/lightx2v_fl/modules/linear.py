"""``flagos``, ``flagos-fp8`` and ``flagos-int8``: linear layers in full and in 8-bit precision."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from lightx2v.common.ops.mm.mm_weight import MMWeight, MMWeightQuantTemplate
from torch import Tensor

from lightx2v_fl import operators
from lightx2v_fl.operators.formats import FP8
from lightx2v_fl.operators.quantized import quantize_fp8, quantize_int8


class FlagosLinear(MMWeight):
    """A linear layer. It inherits loading, offload and LoRA from LightX2V."""

    def apply(self, input_tensor: Tensor) -> Tensor:
        """[tokens, in] → [tokens, out]."""
        output: Tensor = operators.linear(
            input_tensor, self._get_actual_weight(), self._get_actual_bias()
        )
        return output + self.apply_lora(input_tensor) if self.has_lora_branch else output


class _EightBitLinear(MMWeightQuantTemplate):
    """8-bit weights with one scale per output channel; activations are scaled per token.

    The checkpoint has ``<layer>.weight`` in 8 bits with ``<layer>.weight_scale`` beside it, or the weight in
    full precision, which is then quantized while it is loaded. Loaded from disk block by block
    (``lazy_load``) it must be in 8 bits.
    """

    dtype: ClassVar[torch.dtype]
    quantize: ClassVar[Any]  # Tensor → its 8-bit form, and a scale per row
    product: ClassVar[Any]  # the operator

    def __init__(self, weight_name: str, bias_name: str | None = None, *args: Any, **kwargs: Any):
        super().__init__(weight_name, bias_name, *args, **kwargs)
        self.weight_need_transpose = True
        self.scale_force_fp32 = True

    def load(self, weight_dict: dict[str, Tensor]) -> None:
        """Take the weight, its scale and the bias from a checkpoint."""
        if not self.lazy_load:
            self._quantize(weight_dict)
        super().load(weight_dict)

    def _quantize(self, weight_dict: dict[str, Tensor]) -> None:
        weight = weight_dict[self.weight_name]
        if weight.dtype == self.dtype:
            if self.weight_scale_name not in weight_dict:
                raise KeyError(
                    f"{self.weight_name} is {weight.dtype} but the checkpoint has no "
                    f"{self.weight_scale_name}: give the scales, or the weight in full precision"
                )
            return
        if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(
                f"{self.weight_name} is {weight.dtype}; this scheme takes {self.dtype} with scales, "
                "or a weight in full precision"
            )
        quantized, scale = self.quantize(weight)
        weight_dict[self.weight_name], weight_dict[self.weight_scale_name] = quantized, scale

    def register_diff(self, weight_dict: dict[str, Tensor]) -> None:
        """Take the LoRA difference of the bias. A difference of the weight is refused."""
        if self.weight_diff_name in weight_dict:
            raise ValueError(
                f"a difference cannot be added to the 8-bit weight {self.weight_name}: have LightX2V "
                "merge this LoRA before it quantizes (lora_dynamic_apply false), or leave quantization"
            )
        super().register_diff(weight_dict)

    def apply(self, input_tensor: Tensor) -> Tensor:
        """[tokens, in] → [tokens, out]."""
        output: Tensor = self.product(
            input_tensor, self.weight, self.weight_scale, self._get_actual_bias()
        )
        return output + self.apply_lora(input_tensor) if self.has_lora_branch else output


class FlagosFp8Linear(_EightBitLinear):
    """Weights and activations in float8_e4m3fn."""

    dtype = FP8
    quantize = staticmethod(quantize_fp8)
    product = staticmethod(operators.fp8_linear)


class FlagosInt8Linear(_EightBitLinear):
    """Weights and activations in int8."""

    dtype = torch.int8
    quantize = staticmethod(quantize_int8)
    product = staticmethod(operators.int8_linear)

"""``flagos_rms_norm`` and ``flagos_layer_norm``."""

from __future__ import annotations

from typing import Any

from lightx2v.common.ops.norm.layer_norm_weight import LNWeightTemplate
from lightx2v.common.ops.norm.rms_norm_weight import RMSWeightTemplate, RMSWeightTPFP32
from torch import Tensor

from lightx2v_fl import operators


class FlagosRmsNorm(RMSWeightTemplate):
    """RMS norm, with or without a weight. It inherits loading, offload and LoRA from LightX2V.

    Takes the arguments of the installed LightX2V's template, and ``tp_group``, ``tp_rank`` and ``tp_size``
    of its tensor-parallel norms: then a rank holds a part of each row.
    """

    def __init__(
        self,
        weight_name: str | None,
        *args: Any,
        tp_group: Any = None,
        tp_rank: int = 0,
        tp_size: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight_name, *args, **kwargs)
        self.tp_group = tp_group
        self.tp_rank = tp_rank
        self.tp_size = tp_size

    def apply(self, input_tensor: Tensor) -> Tensor:
        """The norm of the last dimension, in the input's shape and dtype."""
        if self.tp_size > 1:
            # The mean is over the parts of all ranks. LightX2V's own norm exchanges the float32 sums.
            shared: Tensor = RMSWeightTPFP32.apply(self, input_tensor)
            return shared
        result: Tensor = operators.rms_norm(input_tensor, self._get_actual_weight(), self.eps)
        return result


class FlagosLayerNorm(LNWeightTemplate):
    """Layer norm, with or without weight and bias. It inherits loading and offload from LightX2V."""

    def apply(self, input_tensor: Tensor) -> Tensor:
        """The norm of the last dimension, in the input's shape and LightX2V's dtype."""
        sensitive = self.sensitive_layer_dtype != self.infer_dtype
        result: Tensor = operators.layer_norm(
            input_tensor.float() if sensitive else input_tensor,
            self._get_actual_weight(),
            self._get_actual_bias(),
            self.eps,
        )
        return result.to(self.infer_dtype) if sensitive else result

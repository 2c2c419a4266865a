"""Builders of the extensions that DeepSpeed has for CUDA alone: they say so."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NoReturn

from deepspeed.ops.op_builder.builder import OpBuilder as _OpBuilder_

from flagos import UnsupportedError

# What each is for, in words of DeepSpeed's configuration or API.
_PURPOSES = {
    "CCLCommBuilder": "collectives by Intel's oneCCL",
    "DeepCompileBuilder": "DeepCompile",
    "EvoformerAttnBuilder": "DS4Sci_EvoformerAttention",
    "FPQuantizerBuilder": "weights of 4, 6, 8 and 12 bits (FP_Quantize)",
    "GDSBuilder": "GPUDirect Storage (aio.use_gds)",
    "InferenceBuilder": "kernel injection (init_inference with replace_with_kernel_inject)",
    "InferenceCoreBuilder": "FastGen (deepspeed.inference.v2)",
    "InferenceCutlassBuilder": "FastGen (deepspeed.inference.v2)",
    "QuantizerBuilder": "quantized weights and gradients (zero_quantized_weights, zero_quantized_gradients)",
    "RaggedOpsBuilder": "FastGen (deepspeed.inference.v2)",
    "RaggedUtilsBuilder": "FastGen (deepspeed.inference.v2)",
    "RandomLTDBuilder": "random-LTD (data_efficiency.data_routing.random_ltd)",
    # Host code, but it writes to the memory of tensors, which is a device's here.
    "ShareMemCommBuilder": "all-reduces over shared host memory: the backend flagos serves them",
    "SpatialInferenceBuilder": "injected diffusers",
    "StochasticTransformerBuilder": "DeepSpeedTransformerLayer",
    "TransformerBuilder": "DeepSpeedTransformerLayer",
}


class _Refused(_OpBuilder_):
    NAME: str
    PURPOSE: str

    def __init__(self) -> None:
        super().__init__(name=self.NAME)

    def absolute_name(self) -> str:
        return f"{__name__}.{self.NAME}"

    def sources(self) -> list[str]:
        return []

    def is_compatible(self, verbose: bool = False) -> bool:
        return False

    def load(self, verbose: bool = True) -> NoReturn:
        raise UnsupportedError(
            f"DeepSpeed's extension {self.NAME} has no implementation for flagos. It is for {self.PURPOSE}: choose a "
            "configuration without it (`flagos trainers check --deepspeed FILE` lists what needs such extensions)"
        )


@cache
def of(class_name: str) -> type:
    """The builder of that name."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name.removesuffix("Builder")).lower()
    attributes: dict[str, Any] = {
        "NAME": words,
        "BUILD_VAR": f"DS_BUILD_{words.upper()}",
        "PURPOSE": _PURPOSES.get(class_name, "a kernel that this flagos-trainers does not know"),
    }
    return type(class_name, (_Refused,), attributes)

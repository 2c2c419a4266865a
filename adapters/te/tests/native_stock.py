"""Stands for the native module of TransformerEngine 2.20: what its Python reads when it is imported.

Its operators fail, so that what te-fl declines shows. ``create_empty_quantized_tensor`` allocates, as there.
"""

from enum import IntEnum

import torch

from te_fl.core import enums
from te_fl.core.signatures import OPERATORS

# Names of TransformerEngine-FL's interface alone.
_NOT_HERE = {
    "convert_host_pointers_to_tensor", "create_comm_overlap", "create_comm_overlap_helper",
    "create_comm_overlap_p2p", "create_fp8_tensor_meta", "get_attention_backend",
    "get_device_pointer_for_data_and_scales", "get_flash_attention_class",
}  # fmt: skip
_NEW = (
    "newton_schulz",
    "cusolvermp_ctx_create",
    "cusolvermp_ctx_destroy",
    "splits_to_offsets_multi",
)


def _enumeration(name, **more):
    members = {n: int(v) for n, v in getattr(enums, name).__members__.items()}
    return IntEnum(name, {**members, **more})


for _one in enums.ENUMERATIONS:
    globals()[_one.__name__] = _one
_TYPES = [
    "kByte",
    "kInt32",
    "kFloat32",
    "kFloat16",
    "kBFloat16",
    "kFloat8E4M3",
    "kFloat8E5M2",
    "kFloat4E2M1",
]
DType = IntEnum("DType", {name: int(enums.DType[name]) for name in _TYPES})
NVTE_QKV_Format = _enumeration("NVTE_QKV_Format", NVTE_BHSD=7, NVTE_QKV_Format_NOT_SET=8)
NVTE_QKV_Layout = _enumeration(
    "NVTE_QKV_Layout", NVTE_BHSD_BHSD_BHSD=25, NVTE_QKV_Layout_NOT_SET=26
)
NVTE_Fused_Attn_Backend = IntEnum(
    "NVTE_Fused_Attn_Backend",
    {"NVTE_No_Backend": -1, "NVTE_F16_arbitrary_seqlen": 1, "NVTE_FP8": 2},
)
NVTEScalingMode = IntEnum(
    "NVTEScalingMode",
    "NVTE_DELAYED_TENSOR_SCALING NVTE_MXFP8_1D_SCALING NVTE_BLOCK_SCALING_1D "
    "NVTE_BLOCK_SCALING_2D NVTE_NVFP4_1D_SCALING NVTE_INVALID_SCALING",
    start=0,
)
NVTERoutingMapFormat = NVTEQBHistogramMode = IntEnum("Format", "A B C", start=0)


class FP8TensorMeta:
    def __init__(self):
        self.scale = self.scale_inv = self.amax_history = None


class CommOverlapHelper:
    pass


class CommOverlap:
    pass


class CommOverlapP2P:
    pass


def _refusing(name):
    def operator(*args, **kwargs):
        raise RuntimeError(f"{name} of the native double was called")

    return operator


for _name in {*OPERATORS, *_NEW} - _NOT_HERE:
    globals()[_name] = _refusing(_name)


def get_cudnn_version():
    return 91900


def get_cublasLt_version():
    return 130100


def create_empty_quantized_tensor(quantizer, shape, dtype, device, pin_memory):
    from transformer_engine.pytorch import Float8Tensor, Float8TensorStorage

    assert type(quantizer).__name__.startswith("Float8"), "the double knows one scale per tensor"
    transposed = [shape[-1], *shape[:-1]]
    data, transpose = (
        torch.empty(s, dtype=torch.uint8, device=device) if wanted else None
        for s, wanted in (
            (shape, quantizer.rowwise_usage),
            (transposed, quantizer.columnwise_usage),
        )
    )
    parts = {
        "data": data,
        "data_transpose": transpose,
        "fp8_scale_inv": torch.empty(1, device=device),
        "fp8_dtype": quantizer.dtype,
        "quantizer": quantizer,
        "fake_dtype": dtype,
    }
    if quantizer.internal:
        return Float8TensorStorage(**parts)
    del parts["fake_dtype"]
    return Float8Tensor(shape=shape, dtype=dtype, device=device, **parts)

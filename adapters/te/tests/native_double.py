"""Stands for TransformerEngine's native module: some operators, an enumeration that is no int, a class."""

import torch

CALLS = []


class _Enumerator:
    def __init__(self, name, value):
        self.name, self.value = name, value


class DType:
    kFloat32 = _Enumerator("kFloat32", 4)
    kBFloat16 = _Enumerator("kBFloat16", 6)


class FP8TensorMeta:
    pass


__version__ = "9.9"


def rmsnorm_fwd(*args):
    CALLS.append("rmsnorm_fwd")
    return "native", None, None


def gelu(input, quantizer):
    CALLS.append("gelu")
    return torch.zeros_like(input)


def nvshmem_finalize():
    CALLS.append("nvshmem_finalize")


def device_supports_multicast(device_id=-1):
    return False

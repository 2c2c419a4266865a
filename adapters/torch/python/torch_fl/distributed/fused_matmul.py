"""Fuses the operators of asynchronous tensor parallelism in a graph, on the host vendor.

Inductor fuses collectives with the matrix products beside them (`torch._inductor.config._micro_pipeline_tp`), for
kernels that torch has for CUDA alone. Nothing would overlap on the host, where torch's own definitions serve: a
collective and a product.
"""

from __future__ import annotations

import torch
from torch.distributed import _symmetric_memory

from torch_fl.native import native

NAMESPACE = "symm_mem"
OPERATORS = (
    "fused_all_gather_matmul",
    "fused_all_gather_scaled_matmul",
    "fused_matmul_reduce_scatter",
    "fused_scaled_matmul_reduce_scatter",
)
KEY = "PrivateUse1"

_library = torch.library.Library(NAMESPACE, "IMPL", KEY)


def register() -> None:
    """Give the operators torch's definitions as kernels of the host's device. Idempotent."""
    if not native().host_computes:
        return
    for name in OPERATORS:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"{NAMESPACE}::{name}", KEY):
            _library.impl(name, getattr(_symmetric_memory, f"_{name}_fallback"))

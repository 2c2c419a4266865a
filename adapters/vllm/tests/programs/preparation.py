"""Sizes of heads for which vLLM's kernel before a gated delta rule compiles, and which the warm-up leaves out.

``preparation.py`` compiles for sm_90 without a GPU. The test starts it with CUDA_VISIBLE_DEVICES="", by which vLLM uses
Triton without a driver.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import serving
import torch
import triton
from sm_90 import compile_alone

SIZES = ((128, 128), (32, 32), (24, 32), (32, 17), (8, 6), (32, 16), (16, 24), (64, 128))
made: list[Any] = []


def compiles(warm: Any, config: Any) -> bool | str:
    """Whether a call compiles kernels; what the compiler says, if it refuses."""
    made.clear()
    try:
        warm(torch.device("cpu"), config)
    except triton.CompilationError as error:
        return str(error)
    return bool(made)


if __name__ == "__main__":
    from vllm.model_executor.warmup import qwen_triton_warmup as module
    from vllm.third_party.flash_linear_attention.ops import fused_gdn_prefill_post_conv

    from vllm_flagos import completions

    assert fused_gdn_prefill_post_conv  # its import asks torch for the chip that a driver names
    compile_alone(lambda kernel, compiled: made.append(compiled))

    own = module._warm_fused_post_conv_kernel
    completions._warm_up_what_compiles(module)
    completions._warm_up_what_compiles(module)  # again does nothing
    warm = module._warm_fused_post_conv_kernel
    assert warm.__wrapped__ is own
    found = []
    for keys, values in SIZES:
        gates = {"a_log": torch.zeros(4), "dt_bias": torch.zeros(4)}
        config = SimpleNamespace(h=2, hv=4, k=keys, v=values, conv_dtype=torch.bfloat16, **gates)
        found.append((compiles(own, config), compiles(warm, config)))
    serving.report(found=found)

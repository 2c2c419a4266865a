"""Models with a state for each sequence: ``hybrid.py KIND FOLDER OPTIONS`` writes a tiny one, and serves it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import serving
import tiny
import torch

NEW = 16


def qwen3_next(values: int = 32) -> Any:
    """Three gated delta nets before each layer of attention, and experts with a shared one.

    Heads of keys have 32 numbers; vLLM's kernels are for as many values.
    """
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        **{**tiny._SIZES, "num_hidden_layers": 4},
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=32,
        linear_value_head_dim=values,
        linear_conv_kernel_dim=4,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        num_experts=4,
        num_experts_per_tok=2,
    )
    return Qwen3NextForCausalLM(config)


def mamba() -> Any:
    """Mamba 1 alone."""
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(MambaConfig(**_mamba(), state_size=8))


def mamba2() -> Any:
    """Mamba 2 alone."""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    sizes = {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "chunk_size": 16}
    return Mamba2ForCausalLM(Mamba2Config(**_mamba(), **sizes))


def _mamba() -> dict[str, Any]:
    return {
        "vocab_size": tiny.VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }


def jamba() -> Any:
    """Attention in every fourth layer, experts in every other one, Mamba 1 else."""
    from transformers import JambaConfig, JambaForCausalLM

    sizes = {**tiny._SIZES, "num_hidden_layers": 4}
    del sizes["head_dim"], sizes["max_position_embeddings"]
    config = JambaConfig(
        **sizes,
        attn_layer_period=4,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        num_experts_per_tok=2,
        mamba_d_state=8,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_dt_rank=8,
        use_mamba_kernels=False,
    )
    return JambaForCausalLM(config)


KINDS: dict[str, Callable[[], Any]] = {
    "qwen3_next": qwen3_next,
    "qwen3_next-narrow": partial(qwen3_next, values=16),
    "mamba": mamba,
    "mamba2": mamba2,
    "jamba": jamba,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    folder, options = str(Path(sys.argv[2]) / sys.argv[1]), json.loads(sys.argv[3])
    made = KINDS[sys.argv[1]]().float().eval()
    numbers = torch.Generator().manual_seed(5)
    with torch.no_grad():  # else what decides about decays is the same in every layer
        for name, weight in made.named_parameters():
            if name.endswith(("dt_bias", "A_log", "dt_proj.bias")):
                weight += 0.3 * torch.randn(weight.shape, generator=numbers)
    # vLLM 0.33 has a cache of states by default, whose kernels are Triton's.
    given = {"max_num_seqs": 4, "enable_prefix_caching": False, **options}
    serving.report_twice(made, folder, NEW, **given)

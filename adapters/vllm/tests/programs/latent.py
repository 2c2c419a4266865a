"""Multi-head latent attention: ``latent.py HEADS FOLDER OPTIONS`` writes a tiny DeepSeek-V3, and serves it.

HEADS are ``deepseek``, of the sizes that DeepSeek's have and that kernels of prompts are for, or ``odd``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import serving
import tiny
import torch

NEW = 20
HEADS = {
    "deepseek": {"qk_nope_head_dim": 128, "v_head_dim": 128},
    "odd": {"qk_nope_head_dim": 16, "v_head_dim": 24},
}


def deepseek(heads: str) -> Any:
    """Latent queries, keys and values; two of three layers with experts in groups and one that all tokens have."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    torch.manual_seed(0)
    sizes = {key: value for key, value in tiny._SIZES.items() if key != "head_dim"}
    config = DeepseekV3Config(
        **{**sizes, "num_key_value_heads": 4},
        q_lora_rank=48,
        kv_lora_rank=256,
        qk_rope_head_dim=64,  # vLLM takes rows of 320 and 576 numbers
        **HEADS[heads],
        first_k_dense_replace=1,
        moe_intermediate_size=64,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        n_shared_experts=1,
        routed_scaling_factor=1.5,
        norm_topk_prob=True,
        topk_method="noaux_tc",  # by which vLLM tells version 3
        scoring_func="sigmoid",
    )
    model = DeepseekV3ForCausalLM(config).float().eval()
    for name, bias in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            bias.uniform_(-0.5, 0.5)
    return model


if __name__ == "__main__":
    folder, options = str(Path(sys.argv[2]) / "deepseek"), json.loads(sys.argv[3])
    serving.report_twice(deepseek(sys.argv[1]), folder, NEW, enable_prefix_caching=True, **options)

"""LoRA, each adapter alone and mixed in a batch: ``lora.py FOLDER OPTIONS``, the folder with all models."""

from __future__ import annotations

import json
import sys

import serving
import tiny

if __name__ == "__main__":
    from vllm.lora.request import LoRARequest

    folder = sys.argv[1]
    model = serving.llm(
        f"{folder}/dense",
        enable_lora=True,
        max_loras=2,
        max_lora_rank=8,
        **json.loads(sys.argv[2]),
    )
    adapters = [None, *(LoRARequest(f"a{n}", n, f"{folder}/adapter{n}") for n in (1, 2))]
    alone = [serving.tokens(model, tiny.prompts(), lora_request=one) for one in adapters]
    pairs = [(prompt, one) for prompt in tiny.prompts() for one in adapters]
    prompts, chosen = zip(*pairs, strict=True)
    found = serving.tokens(model, list(prompts), lora_request=list(chosen))
    serving.report(model, alone=alone, mixed=[found[n::3] for n in range(3)])

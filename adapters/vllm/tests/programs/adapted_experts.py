"""LoRA on experts, each adapter alone and mixed in a batch: ``adapted_experts.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import serving
import tiny
from quantized import separate

ADAPTED = ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
NEW = 16

if __name__ == "__main__":
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    tiny.experts().save_pretrained(folder / "experts")
    tiny.tokenizer().save_pretrained(folder / "experts")
    expected = [tiny.greedy(tiny.experts(), tiny.prompts(), NEW)]
    for number in (1, 2):
        merged = separate(tiny.experts())
        tiny.adapter(folder / f"adapter{number}", merged, number, ADAPTED)
        expected.append(tiny.greedy(merged, tiny.prompts(), NEW))

    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # a function goes to the workers below
    model = serving.llm(
        str(folder / "experts"), enable_lora=True, max_loras=2, max_lora_rank=8, **options
    )
    found = serving.adapted(model, str(folder), NEW)

    from vllm_flagos import warming

    # Steps without requests have adapters that vLLM makes.
    model.collective_rpc(warming.run)
    serving.report(model, expected=expected, **found)

"""LoRA, each adapter alone and mixed in a batch: ``lora.py FOLDER OPTIONS``, the folder with all models."""

from __future__ import annotations

import json
import sys

import serving

if __name__ == "__main__":
    folder = sys.argv[1]
    model = serving.llm(
        f"{folder}/dense",
        enable_lora=True,
        max_loras=2,
        max_lora_rank=8,
        **json.loads(sys.argv[2]),
    )
    serving.report(model, **serving.adapted(model, folder))

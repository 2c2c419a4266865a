"""Requests with and without adapters in one batch: ``low_rank.py FOLDER ONE TWO OPTIONS``."""

from __future__ import annotations

import json
import sys

import serving
import tiny

if __name__ == "__main__":
    folder, one, two, options = sys.argv[1:]
    made = serving.engine(
        folder,
        lora_paths=[f"one={one}", f"two={two}"],
        max_loras_per_batch=2,
        **json.loads(options),
    )
    prompts = tiny.prompts()
    found = {
        "alone": serving.tokens(made, prompts, lora_path=["one"] * len(prompts)),
        "mixed": [
            serving.tokens(made, [p] * 3, lora_path=["one", None, "two"]) for p in prompts[:3]
        ],
        "none": serving.tokens(made, prompts),
    }
    serving.report(made, **found)

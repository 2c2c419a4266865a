"""Greedy tokens, alone and of many requests at once: ``greedy.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys

import serving
import tiny

if __name__ == "__main__":
    import torch

    before = {name: getattr(torch.cuda, name) for name in ("Stream", "Event", "is_available")}
    made = serving.engine(sys.argv[1], **json.loads(sys.argv[2]))
    prompts = tiny.prompts()
    found = serving.tokens(made, prompts)
    many = serving.tokens(made, prompts * 5)
    again = made.generate(input_ids=prompts[-1], sampling_params=serving.GREEDY)
    kept = all(getattr(torch.cuda, name) is value for name, value in before.items())
    serving.report(
        made,
        tokens=found,
        many=many,
        cached=again["meta_info"]["cached_tokens"],
        again=again["output_ids"],
        torch_cuda_kept=kept,
    )

"""The logarithm of each prompt token's probability: ``scores.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys

import serving
import tiny

if __name__ == "__main__":
    from vllm import SamplingParams

    model = serving.llm(sys.argv[1], **json.loads(sys.argv[2]))
    outputs = model.generate(
        [{"prompt_token_ids": p} for p in tiny.prompts()],
        SamplingParams(max_tokens=2, temperature=0.0, prompt_logprobs=1, detokenize=False),
        use_tqdm=False,
    )
    scores = [
        [
            row[token].logprob
            for row, token in zip(o.prompt_logprobs[1:], o.prompt_token_ids[1:], strict=True)
        ]
        for o in outputs
    ]
    serving.report(model, scores=[score for row in scores for score in row])

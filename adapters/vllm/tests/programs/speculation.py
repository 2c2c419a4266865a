"""Drafts from n-grams of the prompt: ``speculation.py FOLDER``."""

from __future__ import annotations

import sys

import serving
import tiny

if __name__ == "__main__":
    drafts = {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }
    model = serving.llm(sys.argv[1], speculative_config=drafts)
    found = serving.tokens(model, tiny.prompts())
    repeated = serving.tokens(model, [[5, 6, 7] * 20], new=30)
    random = serving.tokens(model, tiny.prompts(), temperature=1.0, seed=5)
    again = serving.tokens(model, tiny.prompts(), temperature=1.0, seed=5)
    serving.report(model, tokens=found, repeated=repeated, random=random, again=again)

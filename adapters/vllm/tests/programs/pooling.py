"""Embeddings of the last token: ``pooling.py FOLDER``."""

from __future__ import annotations

import sys

import serving
import tiny

if __name__ == "__main__":
    model = serving.llm(sys.argv[1], runner="pooling", convert="embed", skip_tokenizer_init=False)
    outputs = model.embed([{"prompt_token_ids": p} for p in tiny.prompts()], use_tqdm=False)
    serving.report(model, embeddings=[output.outputs.embedding for output in outputs])

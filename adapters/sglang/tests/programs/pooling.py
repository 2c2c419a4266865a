"""Embeddings: ``pooling.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys
from typing import Any

import serving
import tiny


async def encoded(made: Any, prompts: list[list[int]]) -> list[Any]:
    """`Engine.encode` takes texts alone; these are tokens."""
    from sglang.srt.managers.io_struct import EmbeddingReqInput

    return await anext(
        made.tokenizer_manager.generate_request(EmbeddingReqInput(input_ids=prompts))
    )


if __name__ == "__main__":
    made = serving.engine(sys.argv[1], is_embedding=True, **json.loads(sys.argv[2]))
    outputs = made.loop.run_until_complete(encoded(made, tiny.prompts()))
    serving.report(made, embeddings=[o["embedding"] for o in outputs])

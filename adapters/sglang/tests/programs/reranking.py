"""Scores of pairs of texts by a cross encoder: ``reranking.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys

import more
import serving

if __name__ == "__main__":
    given = {
        "is_embedding": True,
        "chunked_prefill_size": None,
        "mem_fraction_static": 0.5,  # which SGLang derives from the parts of prompts
        **json.loads(sys.argv[2]),
    }
    made = serving.engine(sys.argv[1], **given)
    found = made.rerank(more.pairs())
    serving.report(made, scores=[one["embedding"] for one in found])

"""The logarithm of each prompt token's probability: ``scores.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys

import serving
import tiny

if __name__ == "__main__":
    model = serving.llm(sys.argv[1], **json.loads(sys.argv[2]))
    serving.report(model, scores=serving.scores(model, tiny.prompts()))

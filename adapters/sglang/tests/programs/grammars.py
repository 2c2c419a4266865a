"""Structured output beside another request: ``grammars.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys

import features
import serving
import tiny

LIMIT = {**serving.GREEDY, "max_new_tokens": 120, "ignore_eos": False}

if __name__ == "__main__":
    made = serving.engine(sys.argv[1], **json.loads(sys.argv[2]))
    prompts = tiny.prompts()
    asked = (
        {**LIMIT, "json_schema": json.dumps(features.SCHEMA)},
        {**LIMIT, "regex": "(ab|cd){2}[0-9]{3}"},
        serving.GREEDY,
    )
    found = made.generate(input_ids=prompts[1:4], sampling_params=[*asked])
    serving.report(
        made,
        json=found[0]["text"],
        regex=found[1]["text"],
        beside=found[2]["output_ids"],
        after=serving.tokens(made, prompts),
    )

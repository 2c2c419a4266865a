"""Texts that a grammar allows: ``grammar.py FOLDER``."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import serving

if __name__ == "__main__":
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    model = serving.llm(
        sys.argv[1],
        skip_tokenizer_init=False,
        structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
    )

    def text(**wanted: Any) -> str:
        options = SamplingParams(
            temperature=1.0,
            seed=1,
            max_tokens=60,
            structured_outputs=StructuredOutputsParams(**wanted) if wanted else None,
        )
        return str(model.generate(["Say: "], options, use_tqdm=False)[0].outputs[0].text)

    schema = {
        "type": "object",
        "properties": {"yes": {"type": "boolean"}, "n": {"enum": [1, 2]}},
        "required": ["yes", "n"],
        "additionalProperties": False,
    }
    found = json.loads(text(json=schema))
    assert isinstance(found["yes"], bool) and found["n"] in (1, 2), found
    matched = text(regex="[ab]{3}-[0-9]{2}")
    assert re.fullmatch("[ab]{3}-[0-9]{2}", matched)
    assert text(choice=["left", "right"]) in ("left", "right")
    free = text()
    assert free not in ("left", "right") and not re.fullmatch("[ab]{3}-[0-9]{2}", free)
    serving.report(model, found=found, matched=matched, free=free)

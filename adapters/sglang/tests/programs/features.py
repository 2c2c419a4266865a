"""What a request may ask for, in one engine: ``features.py FOLDER OPTIONS``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import serving
import tiny

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"enum": [1, 20, 300]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PENALTIES = {"frequency_penalty": 0.7, "presence_penalty": 0.4, "repetition_penalty": 1.3}


def one(made: Any, prompt: list[int], **params: Any) -> Any:
    return made.generate(input_ids=prompt, sampling_params={**serving.GREEDY, **params})


def run(made: Any) -> dict[str, Any]:
    prompts = tiny.prompts()
    found: dict[str, Any] = {"tokens": serving.tokens(made, prompts)}
    scored = made.generate(
        input_ids=prompts,
        sampling_params={**serving.GREEDY, "max_new_tokens": 8},
        return_logprob=True,
        logprob_start_len=0,
        top_logprobs_num=2,
    )
    found["logprobs"] = [
        {
            "prompt": [row[0] for row in o["meta_info"]["input_token_logprobs"]],
            "output": [row[0] for row in o["meta_info"]["output_token_logprobs"]],
            "best": [row[0][1] for row in o["meta_info"]["output_top_logprobs"]],
            "tokens": o["output_ids"],
        }
        for o in scored
    ]
    # Tokens of a batch in which some have penalties.
    mixed = made.generate(
        input_ids=[prompts[2], prompts[1]],
        sampling_params=[{**serving.GREEDY, **PENALTIES}, serving.GREEDY],
    )
    found["penalized"] = [o["output_ids"] for o in mixed]
    found["biased"] = one(made, prompts[1], logit_bias={"7": 100.0})["output_ids"]
    first = found["tokens"][1]
    found["stopped"] = one(made, prompts[1], ignore_eos=False, stop_token_ids=[first[5]])[
        "output_ids"
    ]
    found["least"] = one(
        made, prompts[1], ignore_eos=False, stop_token_ids=[first[5]], min_new_tokens=20
    )["output_ids"]
    found["several"] = [
        o["output_ids"]
        for o in made.generate(input_ids=prompts[1], sampling_params={**serving.GREEDY, "n": 3})
    ]
    found["top_k"] = one(made, prompts[1], temperature=1.0, top_k=1)["output_ids"]
    found["top_p"] = one(made, prompts[1], temperature=1.0, top_p=1e-6)["output_ids"]
    found["min_p"] = one(made, prompts[1], temperature=1.0, min_p=1.0)["output_ids"]
    sampled = [one(made, prompts[1], temperature=1.0)["output_ids"] for _ in range(2)]
    found["sampled_differ"] = sampled[0] != sampled[1]
    found["scored"] = made.score(
        query=prompts[1], items=prompts[2:4], label_token_ids=[3, 5, 8], apply_softmax=True
    ).scores
    limit = {"max_new_tokens": 120, "ignore_eos": False}
    grammars = made.generate(
        input_ids=[prompts[1], prompts[2], prompts[3]],
        sampling_params=[
            {**serving.GREEDY, **limit, "json_schema": json.dumps(SCHEMA)},
            {**serving.GREEDY, **limit, "regex": "(ab|cd){2}[0-9]{3}"},
            serving.GREEDY,
        ],
    )
    found["json"], found["regex"] = grammars[0]["text"], grammars[1]["text"]
    found["beside_grammars"] = grammars[2]["output_ids"]
    found["streamed"] = made.loop.run_until_complete(streams(made, prompts))
    found["after"] = serving.tokens(made, prompts)
    return found


async def streams(made: Any, prompts: list[list[int]]) -> list[list[int]]:
    """Five streams at once, of which one is aborted."""

    async def stream(number: int, prompt: list[int]) -> list[int]:
        parts = await made.async_generate(
            input_ids=prompt, sampling_params=serving.GREEDY, stream=True, rid=f"r{number}"
        )
        seen: list[int] = []
        async for part in parts:
            seen = part["output_ids"]
            if number == 2:
                made.tokenizer_manager.abort_request(rid="r2")
        return seen

    return await asyncio.gather(*(stream(n, p) for n, p in enumerate(prompts)))


if __name__ == "__main__":
    made = serving.engine(sys.argv[1], **json.loads(sys.argv[2]))
    serving.report(made, **run(made))

"""What vLLM does with one model: ``features.py FOLDER``. Each check ends the program if it fails."""

from __future__ import annotations

import sys
from typing import Any

import serving
import tiny

if __name__ == "__main__":
    from vllm import SamplingParams

    model = serving.llm(sys.argv[1], max_num_seqs=8, enable_prefix_caching=True)
    prompts = tiny.prompts()
    done = []

    def sampled(prompt: list[int] | None = None, **options: Any) -> Any:
        given: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "detokenize": False}
        return model.generate(
            [{"prompt_token_ids": prompt or prompts[2]}],
            SamplingParams(**{**given, **options}),
            use_tqdm=False,
        )[0]

    shown: list[list[int]] = []

    def ids(output: Any) -> list[int]:
        shown.append(list(output.outputs[0].token_ids))
        return shown[-1]

    def check(name: str, holds: bool) -> None:
        assert holds, name
        done.append(name)

    best = ids(sampled(temperature=0.0))
    for name, options in {
        "temperature": {"temperature": 0.7},
        "top_k": {"temperature": 1.0, "top_k": 5},
        "top_p": {"temperature": 1.0, "top_p": 0.5},
        "min_p": {"temperature": 1.0, "min_p": 0.1},
    }.items():
        first, again = (ids(sampled(seed=7, **options)) for _ in range(2))
        other = ids(sampled(seed=8, **options))
        check(f"{name} repeats with its seed", first == again)
        check(f"{name} differs with another seed", first != other)
    check("top_k 1 is greedy", ids(sampled(temperature=1.0, top_k=1)) == best)
    check("top_p near 0 is greedy", ids(sampled(temperature=1.0, top_p=1e-6)) == best)
    biased = ids(sampled(temperature=0.0, logit_bias={3: 100.0}))
    check("logit bias", biased == [3] * 12)
    check("bad tokens", best[0] not in ids(sampled(temperature=0.0, logit_bias={best[0]: -100.0})))
    allowed = ids(sampled(temperature=1.0, allowed_token_ids=[1, 2, 3]))
    check("allowed tokens", set(allowed) <= {1, 2, 3})
    penalized = ids(sampled(temperature=0.0, presence_penalty=2.0, frequency_penalty=2.0))
    check("penalties", len(penalized) == 12)
    rare = ids(sampled(temperature=0.0, repetition_penalty=100.0))
    check("repetition penalty", len(set(rare)) == 12)
    stopped = ids(sampled(temperature=0.0, stop_token_ids=[best[4]]))
    check("stop token", stopped == best[: best.index(best[4]) + 1])
    later = ids(sampled(temperature=0.0, stop_token_ids=[best[4]], min_tokens=8))
    check("min tokens", len(later) >= 8)
    probable = sampled(temperature=0.0, logprobs=3, prompt_logprobs=2)
    rows = probable.outputs[0].logprobs
    check("logprobs", all(row[token].rank == 1 for row, token in zip(rows, best, strict=True)))
    check("prompt logprobs", len(probable.prompt_logprobs) == len(prompts[2]))
    three = sampled(temperature=1.0, seed=3, n=3).outputs
    check("n", len({tuple(one.token_ids) for one in three}) == 3)
    many = serving.tokens(model, [prompts[n % 5] for n in range(24)], new=8)
    check("24 requests over 8 places", all(many[n] == many[n % 5] for n in range(24)))
    # More than a step takes; the second time the cache has all but its end.
    parts = [7, *prompts[4]]
    first, again = (ids(sampled(parts, temperature=1.0, seed=5)) for _ in range(2))
    check("a seed's tokens do not depend on the steps of a prompt", first == again)
    long = [*prompts[4], *prompts[3]]
    first, again = (ids(sampled(long, temperature=0.0)) for _ in range(2))
    check("the cached prefix", first == again)
    cached = sampled([*long, 5], temperature=0.0)
    check("the prefix was found in the cache", (cached.num_cached_tokens or 0) >= 112)
    serving.report(model, done=done, tokens=shown)

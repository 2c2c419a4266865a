"""vLLM in a program of the tests, and what the plan served.

``SERVING_OPTIONS`` has further options of `LLM`, in JSON, by which `tests/gpu/vllm_programs.py` runs the programs.
``SIMULATED_GRAPHS`` has the host vendor capture graphs (`graphs`), which are counted in the report.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import tiny

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # counters of this process


def llm(folder: str, **options: Any) -> Any:
    """A model of the tests under vLLM; if nothing else is said in float32 and eager, in steps of at most 64 tokens."""
    from vllm import LLM

    if "SIMULATED_GRAPHS" in os.environ:
        import graphs

        graphs.simulate()
    given = {
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "max_model_len": 256,
        "max_num_batched_tokens": 64,
        "kv_cache_memory_bytes": 64 << 20,
        "enforce_eager": True,
        **json.loads(os.environ.get("SERVING_OPTIONS", "{}")),
        **options,
    }
    return LLM(folder, **given)


def is_exact() -> bool:
    """Whether models compute in float32, in which tokens equal those of transformers."""
    given = json.loads(os.environ.get("SERVING_OPTIONS", "{}"))
    return given.get("dtype", "float32") == "float32"


def completions(model: Any, prompts: list[list[int]], new: int = 40, **options: Any) -> list[Any]:
    """What vLLM generates of each prompt, greedy if the options of `SamplingParams` say nothing else.

    ``lora_request``: an adapter for all, or a list with one, or None, for each.
    """
    from vllm import SamplingParams

    lora = options.pop("lora_request", None)
    given = {"temperature": 0.0, "max_tokens": new, "ignore_eos": True, "detokenize": False}
    outputs = model.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        SamplingParams(**{**given, **options}),
        lora_request=lora,
        use_tqdm=False,
    )
    return [output.outputs[0] for output in outputs]


def tokens(model: Any, prompts: list[list[int]], new: int = 40, **options: Any) -> list[list[int]]:
    """The tokens of the `completions`."""
    return [list(one.token_ids) for one in completions(model, prompts, new, **options)]


def tokens_with_logprobs(
    model: Any, prompts: list[list[int]], new: int = 40
) -> tuple[list[list[int]], list[list[float]]]:
    """Greedy tokens of each prompt, and the logarithms of their probabilities, in which bits show that tokens hide."""
    found = completions(model, prompts, new, logprobs=1)
    return [list(one.token_ids) for one in found], [logprobs_of(one) for one in found]


def logprobs_of(completion: Any) -> list[float]:
    """The logarithm of the probability of each token, where they were asked for."""
    pairs = zip(completion.token_ids, completion.logprobs, strict=True)
    return [row[token].logprob for token, row in pairs]


def adapted(model: Any, folder: str, new: int = 40) -> dict[str, list[list[list[int]]]]:
    """Tokens without an adapter, and with each of two in a folder: alone, and all mixed in a batch."""
    from vllm.lora.request import LoRARequest

    adapters = [None, *(LoRARequest(f"a{n}", n, f"{folder}/adapter{n}") for n in (1, 2))]
    alone = [tokens(model, tiny.prompts(), new, lora_request=one) for one in adapters]
    pairs = [(prompt, one) for prompt in tiny.prompts() for one in adapters]
    prompts, chosen = zip(*pairs, strict=True)
    found = tokens(model, list(prompts), new, lora_request=list(chosen))
    return {"alone": alone, "mixed": [found[n :: len(adapters)] for n in range(len(adapters))]}


def report_twice(made: Any, folder: str, new: int, **options: Any) -> None:
    """Writes a model, serves it, and reports its tokens of the same prompts twice, and those of transformers."""
    made.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    prompts = tiny.prompts()
    expected = tiny.greedy(made, prompts, new)
    model = llm(folder, **options)
    first = tokens(model, prompts, new)
    again, logprobs = tokens_with_logprobs(model, prompts, new)
    report(
        model,
        expected=expected,
        tokens=first,
        again=again,
        logprobs=logprobs,
        behind=tiny.behind(made, first),
    )


def scores(model: Any, prompts: list[list[int]]) -> list[float]:
    """The logarithm of the probability of each token of the prompts but their first."""
    from vllm import SamplingParams

    outputs = model.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        SamplingParams(max_tokens=2, temperature=0.0, prompt_logprobs=1, detokenize=False),
        use_tqdm=False,
    )
    return [
        row[token].logprob
        for o in outputs
        for row, token in zip(o.prompt_logprobs[1:], o.prompt_token_ids[1:], strict=True)
    ]


def report(model: Any = None, **found: Any) -> None:
    """Prints a line for the test, under flagos with the counters of all operators that are vLLM's.

    They are those of a model's ranks, in whatever processes these are; without a model those of this process.
    """
    if os.environ["VLLM_PLUGINS"] == "flagos":
        import flagos

        ranks = [flagos.counters()] if model is None else model.collective_rpc("flagos_counters")
        calls, fallbacks = (
            sum(map(Counter, _counted(ranks, name)), Counter()) for name in _COUNTED
        )
        found["calls"] = {op: n for op, n in calls.items() if not op.startswith("aten::")}
        found["fallbacks"] = dict(fallbacks)
        if model is not None:
            found["gathered"] = model.collective_rpc("flagos_gathered")
    if "SIMULATED_GRAPHS" in os.environ:
        import graphs

        found["graphs"] = graphs.counted
    print("REPORT " + json.dumps(found))


_COUNTED = ("calls", "fallbacks")


def _counted(ranks: list[dict[str, dict[str, int]]], name: str) -> list[dict[str, int]]:
    return [{op: counted[name] for op, counted in rank.items() if counted[name]} for rank in ranks]

"""Sleep and new weights: ``sleep.py FOLDER OPTIONS INTO``. Each check ends the program if it fails.

INTO is a file that it writes weights to.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import serving
import tiny


def other(model: Any) -> Any:
    """The model with other weights."""
    import torch

    numbers = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn(weight.shape, generator=numbers) * 0.15)
    return model


def memory(model: Any) -> list[int]:
    """What the allocator of each rank has of its device."""
    found: list[int] = model.collective_rpc("flagos_memory_reserved")
    return found


if __name__ == "__main__":
    import torch
    from safetensors.torch import load_file

    folder, options, into = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    model = serving.llm(folder, enable_sleep_mode=True, enable_prefix_caching=True, **options)
    done, prompts = [], tiny.prompts()
    before = serving.tokens(model, prompts)

    def check(name: str, holds: bool) -> None:
        assert holds, name
        done.append(name)

    def refused(name: str, words: str, call: Any) -> None:
        error = ""
        try:
            call()
        except Exception as caught:
            error = str(caught)
        check(f"{name}: {error}", words in error)

    def send(weights: Any) -> Any:
        return model.collective_rpc("flagos_update_weights", args=(weights,))

    def update(weights: Any) -> Any:
        """By a file: other processes do not get tensors without vLLM's consent to pickles."""
        from safetensors.torch import save_file

        if weights and all(isinstance(value, torch.Tensor) for _, value in weights):
            save_file({name: value.contiguous() for name, value in weights}, into)
            weights = into if len({name for name, _ in weights}) == len(weights) else weights
        return send(weights)

    awake = memory(model)
    for _ in range(2):
        model.sleep(level=1)
        asleep = memory(model)
        check("memory is given back", all(b < a / 8 for a, b in zip(awake, asleep, strict=True)))
        model.wake_up()
        check("the same tokens after a sleep", serving.tokens(model, prompts) == before)
    check("the same memory", all(b <= a * 1.1 for a, b in zip(awake, memory(model), strict=True)))

    changed = other(tiny.experts() if folder.endswith("experts") else tiny.dense())
    changed.save_pretrained(f"{into}.folder")  # by the names of a checkpoint
    weights = list(load_file(f"{into}.folder/model.safetensors").items())
    expected = tiny.greedy(changed, prompts)
    check("other weights have other tokens", expected != before)

    model.sleep(level=2)
    refused("no update asleep", "weights are asleep", lambda: update(weights))
    refused(
        "no reload asleep", "weights are asleep", lambda: model.collective_rpc("reload_weights")
    )
    model.wake_up(tags=["weights"])
    asleep = memory(model)
    check("the cache sleeps on", all(b < a / 2 for a, b in zip(awake, asleep, strict=True)))
    update(weights)
    model.wake_up(tags=["kv_cache"])
    check("new weights after level 2", serving.tokens(model, prompts) == expected)

    name = "model.layers.1.self_attn.q_proj.weight"
    value = dict(weights)[name]
    for what, words, wrong in (
        (
            "a shape",
            f"{name} is [3, 3], and the checkpoint's {list(value.shape)}",
            torch.ones(3, 3),
        ),
        ("no tensor", f"{name} is str, not a tensor", "weights"),
    ):
        refused(what, words, lambda w=wrong: update([weights[0], (name, w)]))
    refused("no file", "is no file of safetensors", lambda: send("/nowhere/at.all"))
    refused("no pairs", "is no pair of a name and a tensor", lambda: send(["weights"]))
    refused("a name", "the checkpoint has no some.weight", lambda: update([("some.weight", value)]))
    if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0":
        refused("twice", f"{name} is there twice", lambda: update([(name, value), (name, value)]))
    check("nothing changed", serving.tokens(model, prompts) == expected)

    model.collective_rpc("reload_weights")
    model.reset_prefix_cache()
    check("the weights of the folder again", serving.tokens(model, prompts) == before)
    model.sleep(level=2)
    model.wake_up(tags=["weights"])
    model.collective_rpc("reload_weights")
    model.wake_up()
    check("from the folder after level 2", serving.tokens(model, prompts) == before)
    model.sleep(level=0)
    model.wake_up(tags=["scheduling"])
    check("level 0", serving.tokens(model, prompts) == before)
    refused("level 3", "sleep level 3", lambda: model.sleep(level=3))
    model.wake_up()
    check("after an error", serving.tokens(model, prompts) == before)
    serving.report(model, done=done, awake=awake, asleep=asleep)

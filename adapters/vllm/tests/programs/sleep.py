"""Sleep and new weights: ``sleep.py FOLDER OPTIONS INTO``. Each check ends the program if it fails.

INTO is a file that it writes weights to. What new weights have to give is transformers' tokens in float32. Other types
need not give these; there it is the tokens of another engine, which begins with a checkpoint of these weights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
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


class Another:
    """An engine in a process of its own, with the model of a folder and the options of this one."""

    def __init__(self, folder: str, options: dict[str, Any]) -> None:
        program = str(Path(__file__).with_name("greedy.py"))
        command = [sys.executable, program, folder, json.dumps(options)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def tokens(self) -> list[list[int]]:
        """What it generates of the prompts."""
        output, _ = self._process.communicate(timeout=300)
        assert self._process.returncode == 0, "the other engine failed"
        (line,) = [line for line in output.splitlines() if line.startswith("REPORT ")]
        found: list[list[int]] = json.loads(line.removeprefix("REPORT "))["tokens"]
        return found


def memory(model: Any) -> list[dict[str, int]]:
    """Of each rank, in bytes: what its allocator has of the device, and what weights and caches have of that."""
    found: list[dict[str, int]] = model.collective_rpc("flagos_memory")
    return found


def gave_back(awake: dict[str, int], asleep: dict[str, int], *tags: str) -> bool:
    """Whether the tags' bytes are free, and the device has nearly all of them.

    Libraries keep their workspaces, which are larger than a tiny model, and segments have rests.
    """
    theirs = sum(awake[tag] for tag in tags)
    free, given = (awake[name] - asleep[name] for name in ("allocated", "reserved"))
    return not any(asleep[tag] for tag in tags) and free >= theirs and given >= theirs * 7 / 8


if __name__ == "__main__":
    import torch
    from safetensors.torch import load_file

    folder, options, into = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    changed = other(tiny.experts() if folder.endswith("experts") else tiny.dense())
    changed.save_pretrained(f"{into}.folder")  # by the names of a checkpoint
    weights = list(load_file(f"{into}.folder/model.safetensors").items())
    given = {"enable_prefix_caching": True, **options}
    another = None if serving.is_exact() else Another(f"{into}.folder", given)
    model = serving.llm(folder, enable_sleep_mode=True, **given)
    done, prompts = [], tiny.prompts()

    def tokens() -> list[list[int]]:
        """Without the prefixes of an earlier call, which would be computed in other parts, with other last bits."""
        assert model.reset_prefix_cache()
        return serving.tokens(model, prompts)

    before = tokens()

    def check(name: str, holds: bool, told: Any = "") -> None:
        assert holds, f"{name} {told}"
        done.append(name)

    def check_given_back(name: str, awake: list[dict[str, int]], *tags: str) -> None:
        pairs = list(zip(awake, memory(model), strict=True))
        check(name, all(gave_back(a, b, *tags) for a, b in pairs), pairs)

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

    model.sleep(level=1)  # before anything of flagos' own asks for the memory
    model.wake_up()
    check("the first call is a sleep", serving.tokens(model, prompts) == before)
    first = memory(model)
    for _ in range(2):
        awake = memory(model)
        model.sleep(level=1)
        check_given_back("memory is given back", awake, "weights", "kv_cache")
        model.wake_up()
        # An old cache would show: the prefixes are not forgotten here by the program.
        check("the same tokens after a sleep", serving.tokens(model, prompts) == before)
    pairs = [(a["reserved"], b["reserved"]) for a, b in zip(first, memory(model), strict=True)]
    check("the same memory", all(b <= a * 1.1 for a, b in pairs), pairs)

    expected = tiny.greedy(changed, prompts) if another is None else another.tokens()
    check("other weights have other tokens", expected != before)

    awake = memory(model)
    model.sleep(level=2)
    refused("no update asleep", "weights are asleep", lambda: update(weights))
    refused(
        "no reload asleep", "weights are asleep", lambda: model.collective_rpc("reload_weights")
    )
    model.wake_up(tags=["weights"])
    asleep = memory(model)
    check_given_back("the cache sleeps on", awake, "kv_cache")
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
    apart = os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    if not apart:
        refused("twice", f"{name} is there twice", lambda: update([(name, value), (name, value)]))
    check("nothing changed", tokens() == expected)

    model.collective_rpc("reload_weights")
    check("the weights of the folder again", tokens() == before)
    model.sleep(level=2)
    model.wake_up(tags=["weights"])
    model.collective_rpc("reload_weights")
    model.wake_up()
    check("from the folder after level 2", serving.tokens(model, prompts) == before)
    model.sleep(level=0)
    model.wake_up(tags=["scheduling"])
    check("level 0", tokens() == before)
    refused("level 3", "sleep level 3", lambda: model.sleep(level=3))
    model.wake_up()
    check("after an error", tokens() == before)

    # vLLM 0.33; an engine in this process still has the requests that are done, and refuses.
    if apart and hasattr(model.llm_engine, "release_kv_cache_memory"):
        awake = memory(model)
        model.sleep(level=0)  # which the call asks for
        model.llm_engine.release_kv_cache_memory()
        check_given_back("the cache alone is released", awake, "kv_cache")
        check("the weights are awake", all(one["weights"] for one in memory(model)))
        model.sleep(level=1)
        check_given_back("then the weights, too", awake, "weights", "kv_cache")
        model.wake_up()
        check("after a released cache", tokens() == before)
    if "sleep_preserve_parameter_names" in options:
        model.sleep(level=2)
        model.wake_up()
        check("kept by name at level 2", tokens() == before)
    serving.report(model, done=done, awake=awake, asleep=asleep)

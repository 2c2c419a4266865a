"""Weights that change and memory that is released while an engine is up: ``weights.py FOLDER OTHER OPTIONS``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import serving
import tiny


def weights(folder: str) -> list[tuple[str, Any]]:
    from safetensors.torch import load_file

    files = sorted(Path(folder).glob("*.safetensors"))
    return [pair for file in files for pair in load_file(file).items()]


def refused(call: Any, *args: Any, **kwargs: Any) -> str:
    try:
        call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    import torch

    folder, other, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    made = serving.engine(folder, enable_memory_saver=True, **options)
    prompts, found = tiny.prompts(), {}
    found["first"] = serving.tokens(made, prompts)
    with serving.new_weights(made):
        made.update_weights_from_tensor(weights(other))
    found["updated"] = serving.tokens(made, prompts)
    with serving.new_weights(made):
        made.update_weights_from_tensor([(n, t.to("flagos")) for n, t in weights(folder)])
    found["from_the_device"] = serving.tokens(made, prompts)
    made.update_weights_from_disk(other)
    found["from_disk"] = serving.tokens(made, prompts)
    found["not_released"] = refused(made.resume_memory_occupation)
    free = torch.flagos.mem_get_info()[0]
    made.release_memory_occupation()
    found["twice"] = refused(made.release_memory_occupation)
    found["while_released"] = refused(serving.tokens, made, prompts)
    made.resume_memory_occupation(["weights"])
    with serving.new_weights(made):
        made.update_weights_from_tensor(weights(folder))
    made.resume_memory_occupation(["kv_cache", "cuda_graph"])
    found["resumed"] = serving.tokens(made, prompts)
    serving.report(made, **found)

"""fp8 weights with a scale for each block of 128 × 128, as Qwen3's FP8 models have them: ``blocks.py FOLDER OPTIONS``.

Writes the model into FOLDER, as FORMAT (fp8, the default, or compressed-tensors) in the environment has it, and reports
the prompts' scores under vLLM, and by transformers with the weights that are meant and with those before.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import serving
import tiny
import torch

BLOCK = 128
_GROUP = {"num_bits": 8, "type": "float", "symmetric": True}
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {  # the scales' name, and the description
    "fp8": (
        "weight_scale_inv",
        {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "weight_block_size": [BLOCK, BLOCK],
        },
    ),
    "compressed-tensors": (
        "weight_scale",
        {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {**_GROUP, "strategy": "block", "block_structure": [BLOCK, BLOCK]},
                    "input_activations": {
                        **_GROUP,
                        "strategy": "group",
                        "group_size": BLOCK,
                        "dynamic": True,
                    },
                }
            },
        },
    ),
}


def quantized(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A weight in 8 bits, the scales of its blocks, and the numbers that are meant."""
    blocks = weight.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scales = blocks.abs().amax((1, 3)) / 448
    eight = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    meant = eight.float() * scales[:, None, :, None]
    return eight.reshape(weight.shape), scales, meant.reshape(weight.shape)


def write(folder: Path, model: Any, name: str) -> None:
    """Writes the model in 8 bits, and gives it the numbers that are meant."""
    from safetensors.torch import save_file

    scales_name, description = FORMATS[name]
    tensors = {}
    for key, weight in model.state_dict().items():
        if key.endswith("proj.weight"):
            tensors[key], scales, meant = quantized(weight)
            tensors[f"{key.removesuffix('weight')}{scales_name}"] = scales
            with torch.no_grad():
                weight.copy_(meant)
        else:
            tensors[key] = weight.contiguous()
    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": [type(model).__name__], "quantization_config": description}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def scores(model: Any) -> list[float]:
    """The logarithm of each prompt token's probability, by transformers."""
    found: list[float] = []
    for prompt in tiny.prompts():
        given = torch.tensor(prompt)
        with torch.no_grad():
            rows = torch.log_softmax(model(given[None]).logits[0].float(), -1)
        found += rows[:-1].gather(1, given[1:, None])[:, 0].tolist()
    return found


if __name__ == "__main__":
    name, options = os.environ.get("FORMAT", "fp8"), json.loads(sys.argv[2])
    folder = Path(sys.argv[1]) / f"blocks-{name}"
    folder.mkdir(exist_ok=True)
    made = tiny.dense(hidden_size=256, intermediate_size=384, head_dim=64)
    before = scores(made)
    write(folder, made, name)
    llm = serving.llm(str(folder), dtype="bfloat16", **options)
    found = serving.scores(llm, tiny.prompts())
    serving.report(llm, scores=found, meant=scores(made), before=before)

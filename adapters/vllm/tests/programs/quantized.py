"""Weights of integers: ``quantized.py KIND FOLDER OPTIONS`` writes a tiny model, and serves it.

KIND is a form of `FORMS`, with ``experts-`` before it for Qwen3-MoE. What is expected is transformers' with the numbers
that are meant; of W8A8 with activations rounded in each linear layer, where a difference in the last bit of a sum may
round otherwise: ``behind`` is how far vLLM's tokens are from the best. Nothing here is vLLM's or the adapter's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import serving
import tiny
import torch
from torch import Tensor

GROUP = 32
Tensors = dict[str, Tensor]
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # in which AWQ writes eight numbers


def grouped(
    weight: Tensor, bits: int, group: int, symmetric: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Numbers [out, in], scales and zeros [out, groups], and the weight that is meant."""
    blocks = weight.unflatten(1, (-1, group))
    most = 2**bits - 1
    if symmetric:
        scales = blocks.abs().amax(2) / (2 ** (bits - 1) - 1)
        zeros = torch.full_like(scales, 2 ** (bits - 1))
    else:
        low, high = blocks.amin(2).clamp(max=0), blocks.amax(2).clamp(min=0)
        scales = (high - low) / most
        zeros = torch.round(-low / scales).clamp(0, most)
    numbers = (torch.round(blocks / scales[..., None]) + zeros[..., None]).clamp(0, most)
    meant = (numbers - zeros[..., None]) * scales[..., None]
    return numbers.flatten(1).long(), scales, zeros.long(), meant.flatten(1)


def pack(numbers: Tensor, bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """Numbers [rows, n] as int32 [rows, n / (32 / bits)], the first in the lowest bits."""
    each = 32 // bits
    whole = torch.zeros(numbers.shape[0], numbers.shape[1] // each, dtype=torch.long)
    for place, which in enumerate(order or range(each)):
        whole |= numbers[:, which::each] << (bits * place)
    return torch.where(whole >= 2**31, whole - 2**32, whole).int()


def awq(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
    numbers, scales, zeros, meant = grouped(weight, 4, GROUP, symmetric=False)
    return {
        f"{name}.qweight": pack(numbers.t(), 4, _ORDER),
        f"{name}.qzeros": pack(zeros.t(), 4, _ORDER),
        f"{name}.scales": scales.t().contiguous(),
    }, meant


def gptq(name: str, weight: Tensor, bits: int = 4, order: bool = False) -> tuple[Tensors, Tensor]:
    inputs = weight.shape[1]
    places = torch.arange(inputs)
    if order:  # rows of a group lie anywhere, at the same places in layers that are read together
        places = torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs))
    numbers, scales, zeros, meant = grouped(weight[:, places], bits, GROUP, symmetric=True)
    back = torch.argsort(places)
    return {
        f"{name}.qweight": pack(numbers[:, back], bits).t().contiguous(),
        f"{name}.qzeros": pack(zeros.t() - 1, bits),
        f"{name}.scales": scales.t().contiguous(),
        f"{name}.g_idx": (back // GROUP).int(),
    }, meant[:, back]


def packed(
    name: str, weight: Tensor, bits: int = 4, symmetric: bool = True, group: int | None = GROUP
) -> tuple[Tensors, Tensor]:
    numbers, scales, zeros, meant = grouped(weight, bits, group or weight.shape[1], symmetric)
    made = {
        f"{name}.weight_packed": pack(numbers, bits),
        f"{name}.weight_scale": scales,
        f"{name}.weight_shape": torch.tensor(weight.shape),
    }
    if not symmetric:
        made[f"{name}.weight_zero_point"] = pack(zeros.t(), bits).t().contiguous()
    return made, meant


def eight(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
    scales = weight.abs().amax(1, keepdim=True) / 127
    numbers = torch.round(weight / scales)
    return {
        f"{name}.weight": numbers.to(torch.int8),
        f"{name}.weight_scale": scales,
    }, numbers * scales


def _compressed(kind: str, weights: dict[str, Any], given: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "quantization_status": "compressed",
        "ignore": ["lm_head", "re:.*mlp.gate$"],
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "input_activations": given}
        },
    }


def _few(bits: int, symmetric: bool, group: int | None) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric}
    how: dict[str, Any] = (
        {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
    )
    return _compressed("pack-quantized", weights | how, None)


def _whole(symmetric: bool) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    given = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    return _compressed("int-quantized", weights, given | {"symmetric": symmetric})


_AWQ = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": GROUP,
    "zero_point": True,
    "version": "gemm",
}
_GPTQ = {"quant_method": "gptq", "group_size": GROUP, "sym": True, "desc_act": False}
Write = Callable[[str, Tensor], tuple[Tensors, Tensor]]
FORMS: dict[str, tuple[Write, dict[str, Any]]] = {
    "awq": (awq, _AWQ),
    "gptq": (gptq, {**_GPTQ, "bits": 4}),
    "gptq8": (lambda name, w: gptq(name, w, 8), {**_GPTQ, "bits": 8}),
    "gptq-order": (
        lambda name, w: gptq(name, w, order=True),
        {**_GPTQ, "bits": 4, "desc_act": True},
    ),
    "w4a16": (packed, _few(4, True, GROUP)),
    "w4a16-zeros": (lambda name, w: packed(name, w, symmetric=False), _few(4, False, GROUP)),
    "w4a16-channel": (lambda name, w: packed(name, w, group=None), _few(4, True, None)),
    "w8a16": (lambda name, w: packed(name, w, 8), _few(8, True, GROUP)),
    "w8a8": (eight, _whole(True)),
    "w8a8-zeros": (eight, _whole(False)),
}


def rounded(x: Tensor, symmetric: bool) -> Tensor:
    """X as int8 with a scale for each row has it."""
    if symmetric:
        most = x.abs().amax(-1, keepdim=True)
        return torch.round(x * (127 / most)).clamp(-128, 127) * (most / 127)
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    scale = (high - low) / 255
    zero = torch.round(-128 - low / scale)
    return ((torch.round(x * (1 / scale)) + zero).clamp(-128, 127) - zero) * scale


def separate(model: Any) -> Any:
    """Gives experts that transformers packs together layers of their own, of the names in checkpoints."""
    for layer in model.model.layers:
        experts = layer.mlp.experts
        half = experts.gate_up_proj.shape[1] // 2
        layer.mlp.experts = Experts(
            [
                (
                    experts.gate_up_proj[n, :half],
                    experts.gate_up_proj[n, half:],
                    experts.down_proj[n],
                )
                for n in range(experts.gate_up_proj.shape[0])
            ]
        )
    return model


class Experts(torch.nn.ModuleList):
    """One module for each expert."""

    def __init__(self, weights: list[tuple[Tensor, Tensor, Tensor]]) -> None:
        super().__init__()
        for one in weights:
            expert = torch.nn.Module()
            for name, weight in zip(("gate_proj", "up_proj", "down_proj"), one, strict=True):
                linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
                linear.weight.data = weight.detach().clone()
                setattr(expert, name, linear)
            self.append(expert)

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        for row in range(x.shape[0]):
            for which, share in zip(chosen[row].tolist(), shares[row], strict=True):
                one = self[which]
                hidden = torch.nn.functional.silu(one.gate_proj(x[row, None])) * one.up_proj(
                    x[row, None]
                )
                result[row] += share * one.down_proj(hidden)[0]
        return result


def write(folder: Path, model: Any, form: str) -> None:
    """Writes the model with weights of integers, and gives it the numbers that are meant."""
    from safetensors.torch import save_file

    make, description = FORMS[form]
    tensors: Tensors = {}
    linears = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name.endswith("_proj")
    }
    for key, weight in model.state_dict().items():
        name = key.removesuffix(".weight")
        if name in linears:
            made, meant = make(name, weight)
            tensors |= made
            weight.copy_(meant)
        else:
            tensors[key] = weight.contiguous()
    if form.startswith("w8a8"):
        for module in linears.values():
            module.register_forward_pre_hook(
                lambda module, args: (rounded(args[0], form == "w8a8"),)
            )
    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": [type(model).__name__], "quantization_config": description}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    tiny.tokenizer().save_pretrained(folder)


if __name__ == "__main__":
    kind, options = sys.argv[1], json.loads(sys.argv[3])
    folder = Path(sys.argv[2]) / f"integers-{kind}"
    folder.mkdir(exist_ok=True)
    made = tiny.experts() if kind.startswith("experts-") else tiny.dense()
    new = options.pop("new", tiny.NEW)
    with torch.no_grad():
        if kind.startswith("experts-"):
            separate(made)
        write(folder, made, kind.removeprefix("experts-"))
        expected = tiny.greedy(made, tiny.prompts(), new)
    llm = serving.llm(str(folder), **options)
    tokens, logprobs = serving.tokens_with_logprobs(llm, tiny.prompts(), new)
    serving.report(
        llm,
        expected=expected,
        tokens=tokens,
        logprobs=logprobs,
        behind=tiny.behind(made, tokens),
    )

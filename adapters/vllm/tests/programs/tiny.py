"""Tiny models of random weights, with what transformers computes with them on the CPU."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

LENGTHS = (
    1,
    5,
    17,
    40,
    90,
)  # of the prompts: one token, a part of a block, more than one step takes
NEW = 40
VOCABULARY = 512
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "initializer_range": 0.15,  # large enough for tokens that differ
    "eos_token_id": None,
    "bos_token_id": None,
}
ALPHA, RANK = 16, 8
ADAPTED = ("q_proj", "v_proj", "o_proj", "gate_proj", "down_proj")


def prompts() -> list[list[int]]:
    """Random prompts, the same each time."""
    numbers = torch.Generator().manual_seed(1)
    return [torch.randint(0, VOCABULARY, (n,), generator=numbers).tolist() for n in LENGTHS]


def dense(**sizes: Any) -> Any:
    """Qwen3 with three layers, on the CPU in float32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**{**_SIZES, **sizes})).float().eval()


def experts() -> Any:
    """Qwen3-MoE with eight experts, of which two serve a token."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        **_SIZES,
        moe_intermediate_size=64,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
    )
    return Qwen3MoeForCausalLM(config).float().eval()


def grouped() -> Any:
    """GLM-4-MoE: two experts of eight, from the better half, chosen with a bias; two of three layers have them."""
    from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

    torch.manual_seed(0)
    config = Glm4MoeConfig(
        **_SIZES,
        moe_intermediate_size=64,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        routed_scaling_factor=1.5,
    )
    model = Glm4MoeForCausalLM(config).float().eval()
    for name, bias in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            bias.uniform_(-0.5, 0.5)
    return model


def tokenizer() -> Any:
    """One token for each byte, and others that no text has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*letters, *(f"<|{n}|>" for n in range(VOCABULARY - len(letters)))]
    made = Tokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=names[-1], pad_token=names[-2])


def embeddings(model: Any) -> list[list[float]]:
    """The last hidden state of each prompt, of length 1."""
    with torch.no_grad():
        last = [model.model(torch.tensor([p])).last_hidden_state[0, -1] for p in prompts()]
    return [torch.nn.functional.normalize(state, dim=0).tolist() for state in last]


def expecting(model: Any) -> Any:
    """The model where it says what is expected: ``EXPECTED_ON`` is a device and a type, ``cpu float32`` if not set."""
    device, dtype = os.environ.get("EXPECTED_ON", "cpu float32").split()
    return model if device == "cpu" else deepcopy(model).to(device, getattr(torch, dtype))


def greedy(model: Any, given: list[list[int]], new: int = NEW) -> list[list[int]]:
    """The tokens that transformers generates."""
    model = expecting(model)
    return [
        model.generate(
            torch.tensor([prompt], device=model.device),
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )[0, len(prompt) :].tolist()
        for prompt in given
    ]


def behind(model: Any, tokens: list[list[int]], after: list[list[int]] | None = None) -> float:
    """How far, at most, the logarithm of a token's probability is below the best one's, by transformers.

    ``tokens`` follow the prompts ``after``, if none are given `prompts`. It is 0 where they are transformers'.
    """
    model, most = expecting(model), 0.0
    for prompt, new in zip(after or prompts(), tokens, strict=True):
        given = torch.tensor([prompt + new[:-1]], device=model.device)
        with torch.no_grad():
            rows = torch.log_softmax(model(given).logits[0].float(), -1)[len(prompt) - 1 :].cpu()
        chosen = rows.gather(1, torch.tensor(new)[:, None])[:, 0]
        most = max(most, float((rows.amax(1) - chosen).max()))
    return most


def adapter(folder: Path, model: Any, seed: int, adapted: tuple[str, ...] = ADAPTED) -> None:
    """Writes a LoRA adapter of random weights, and adds it to the model."""
    from safetensors.torch import save_file

    numbers = torch.Generator().manual_seed(seed)
    weights = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in adapted:
            continue
        a = torch.randn(RANK, module.in_features, generator=numbers) * 0.1
        b = torch.randn(module.out_features, RANK, generator=numbers) * 0.1
        weights[f"base_model.model.{name}.lora_A.weight"] = a
        weights[f"base_model.model.{name}.lora_B.weight"] = b
        with torch.no_grad():
            module.weight += (b @ a) * (ALPHA / RANK)
    folder.mkdir()
    save_file(weights, str(folder / "adapter_model.safetensors"))
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(adapted),
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def write(folder: Path) -> None:
    """Writes every model and adapter, and ``expected.json`` with the tokens."""
    expected: dict[str, Any] = {}
    for name, model in {"dense": dense(), "experts": experts(), "grouped": grouped()}.items():
        model.save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
        expected[name] = greedy(model, prompts())
    expected["embeddings"] = embeddings(dense())
    for number in (1, 2):
        merged = dense()
        adapter(folder / f"adapter{number}", merged, number)
        expected[f"adapter{number}"] = greedy(merged, prompts())
    (folder / "expected.json").write_text(json.dumps(expected))

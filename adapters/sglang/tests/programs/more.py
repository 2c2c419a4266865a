"""The tiny models of vLLM's tests, and those that SGLang's have beside them, with transformers' tokens."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tiny
import torch


def llama() -> Any:
    """Llama with grouped heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**tiny._SIZES)).float().eval()


def other() -> Any:
    """The dense model with other weights."""
    model = tiny.dense()
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
    return model


def windows(tokens: int = 16) -> Any:
    """Gemma 2: every other layer sees so many tokens, and scores and logits have caps."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        **{**tiny._SIZES, "tie_word_embeddings": True},
        sliding_window=tokens,
        query_pre_attn_scalar=32,
        attn_logit_softcapping=20.0,
        final_logit_softcapping=30.0,
        attn_implementation="eager",
    )
    config.hidden_act = "gelu_pytorch_tanh"  # which SGLang reads
    model = Gemma2ForCausalLM(config).float().eval()
    with torch.no_grad():  # for tokens that differ
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(0.05 if "embed" in name else 2)
    return model


def cohere(tokens: int = 16) -> Any:
    """Cohere 2, whose class in SGLang does not name the window of its layers."""
    from transformers import Cohere2Config, Cohere2ForCausalLM

    torch.manual_seed(0)
    config = Cohere2Config(
        **{**tiny._SIZES, "tie_word_embeddings": True},
        sliding_window=tokens,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        logit_scale=1.0,
        pad_token_id=0,
        attn_implementation="eager",
    )
    return Cohere2ForCausalLM(config).float().eval()


def model(name: str) -> Any:
    """The model of a folder or, with its weights added, of an adapter for the dense one."""
    makers = {
        "dense": tiny.dense,
        "experts": tiny.experts,
        "grouped": tiny.grouped,
        "llama": llama,
        "other": other,
        "windows": windows,
        "cohere": cohere,
    }
    if name in makers:
        return makers[name]()
    merged = tiny.dense()
    with TemporaryDirectory() as folder:
        tiny.adapter(Path(folder) / name, merged, int(name.removeprefix("adapter")))
    return merged


def latent() -> Any:
    """DeepSeek's multi-head latent attention."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    torch.manual_seed(0)
    sizes = {k: v for k, v in tiny._SIZES.items() if k not in ("head_dim", "num_key_value_heads")}
    config = DeepseekV3Config(
        **sizes,
        num_key_value_heads=4,
        moe_intermediate_size=64,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        kv_lora_rank=32,
        q_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=16,
        v_head_dim=32,
    )
    return DeepseekV3ForCausalLM(config)


def pairs() -> list[list[str]]:
    """Queries with documents."""
    return [["sea", "The sea is blue."], ["sea", "fog"], ["a", "It rains, and the wind blows."]]


def cross() -> Any:
    """A cross encoder: one score for a pair of texts, in which every token sees every other."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tiny.VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=256,
        initializer_range=0.15,
        num_labels=1,
    )
    config.position_embedding_type = "absolute"  # which SGLang reads, and models have
    return BertForSequenceClassification(config).float().eval()


def scored_pairs(model: Any) -> list[float]:
    """The score of each pair by transformers."""
    found = []
    for pair in pairs():
        given = tiny.tokenizer()(*pair, return_tensors="pt", return_token_type_ids=True)
        with torch.no_grad():
            found.append(float(model(**given).logits[0, 0]))
    return found


def labels(model: Any, query: list[int], items: list[list[int]], of: list[int]) -> list[Any]:
    """The probabilities of some tokens, among these, after a query and an item."""
    found = []
    for item in items:
        with torch.no_grad():
            row = model(torch.tensor([query + item])).logits[0, -1]
        found.append(torch.softmax(row[of], dim=0).tolist())
    return found


def scored(model: Any, prompt: list[int], new: list[int]) -> list[float]:
    """The logarithm of the probability of each token but the first."""
    whole = torch.tensor([prompt + new])
    with torch.no_grad():
        rows = torch.log_softmax(model(whole).logits[0, :-1], dim=-1)
    return [float(row[token]) for row, token in zip(rows, whole[0, 1:], strict=True)]


def penalized(
    model: Any, prompt: list[int], new: int, penalties: dict[str, float], late: bool
) -> list[int]:
    """Greedy tokens with penalties. SGLang's overlapped scheduler counts one step late, the prompt's last one first."""
    tokens: list[int] = []
    for _ in range(new):
        counted = [prompt[-1], *tokens[:-1]] if late and tokens else tokens
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens])).logits[0, -1]
        seen = torch.zeros_like(logits)
        for token in counted:
            seen[token] += 1
        logits = logits - penalties["frequency_penalty"] * seen
        logits = logits - penalties["presence_penalty"] * (seen > 0)
        factor = penalties["repetition_penalty"]
        scaled = torch.where(logits < 0, logits * factor, logits / factor)
        tokens.append(int(torch.where(seen > 0, scaled, logits).argmax()))
    return tokens


def write(folder: Path) -> None:
    """Writes every model, and ``expected.json``."""
    tiny.write(folder)
    expected = json.loads((folder / "expected.json").read_text())
    for name in ("llama", "other", "windows", "cohere"):
        made = model(name)
        made.save_pretrained(folder / name)
        tiny.tokenizer().save_pretrained(folder / name)
        expected[name] = tiny.greedy(made, tiny.prompts())
    # SGLang takes Cohere's window for one without the query's own token.
    cohere(15).save_pretrained(folder / "cohere")
    latent().save_pretrained(folder / "latent")
    tiny.tokenizer().save_pretrained(folder / "latent")
    encoder = cross()
    encoder.save_pretrained(folder / "cross")
    tiny.tokenizer().save_pretrained(folder / "cross")
    expected["pairs"] = scored_pairs(encoder)
    dense = tiny.dense()
    prompts = tiny.prompts()
    expected["labels"] = labels(dense, prompts[1], prompts[2:4], [3, 5, 8])
    expected["scores"] = [
        scored(dense, prompt, new[:8])
        for prompt, new in zip(tiny.prompts(), expected["dense"], strict=True)
    ]
    (folder / "expected.json").write_text(json.dumps(expected))

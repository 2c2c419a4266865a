"""Every architecture of transformers that can be made small, on two devices, step for step.

    python -m tests.models.zoo [--only NAME ...] [--reference cpu] [--device flagos] [--attention default eager]
                               [--close] [--seconds S] [--json FILE]

Each model gets random weights, then does what its kind is for: logits, a loss and every gradient, a step of AdamW,
and, where it writes, generated tokens. Both sides must agree to the bit, and raise the same errors. What cannot be
built from its configuration alone is named, and no part of the count. Ends with 1 where a model differs.

A device with kernels of its own rounds otherwise and draws other numbers: with `--close` both sides have to agree as
far as float32 carries through two steps of training, and drop nothing out.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

# Values that make an architecture small, where its configuration has the field.
SMALL: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "d_model": 64, "n_embd": 64, "embedding_size": 64, "embed_dim": 64,
    "intermediate_size": 96, "ffn_dim": 96, "d_ff": 96, "n_inner": 96, "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "word_embed_proj_dim": 64,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "n_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16,
    "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "image_size": 32, "patch_size": 8, "state_size": 8, "time_step_rank": 8, "expand": 2, "num_labels": 3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
KINDS = {
    "writes": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "translates": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "fills": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "sees": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
}
LARGEST = 150_000_000  # parameters: what did not become small
RELATIVE, ABSOLUTE = 2e-3, 2e-4  # what is close


# Tried in this order, until the reference computes something.
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 4},
    {"num_hidden_layers": 4},
    {"num_hidden_layers": 6, "num_key_value_heads": 4},
    {"image_size": 128},
)


def configuration(model_type: str, variant: dict[str, Any]) -> Any:
    """A small one; raises what transformers raises where the fields do not go together."""
    kind = getattr(transformers, CONFIG_MAPPING_NAMES[model_type])
    known = kind().to_dict()
    lists = {name for name, value in known.items() if isinstance(value, list | tuple)}
    wanted = {**SMALL, **variant}
    config = kind(**{name: wanted[name] for name in wanted.keys() & known.keys() - lists})
    if config.is_encoder_decoder:
        config.decoder_start_token_id = 1
    return config


def without_dropout(config: Any) -> Any:
    """The configuration, and those in it, with every probability of dropping out 0."""
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
        elif hasattr(value, "model_type"):
            without_dropout(value)
    return config


def batch(kind: str, config: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    if kind == "sees":
        channels = getattr(config, "num_channels", 3)
        size = getattr(config, "image_size", 64)
        size = (size, size) if isinstance(size, int) else tuple(size)
        pixels = torch.randn(2, channels, *size, generator=generator)
        return {"pixel_values": pixels, "labels": torch.tensor([0, 1])}
    tokens = torch.randint(3, config.vocab_size, (2, 12), generator=generator)
    return {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "labels": tokens.clone(),
    }


def tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value.detach().cpu()
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from tensors(each, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from tensors(each, f"{name}[{number}]")


def run(kind: str, name: str, config: Any, device: str) -> list[tuple[str, torch.Tensor | str]]:
    """The results that the program shows, in order; the errors it raises are part of them."""
    shown: list[tuple[str, torch.Tensor | str]] = []
    torch.manual_seed(0)
    model = getattr(transformers, name)(config)
    given = {key: value.to(device) for key, value in batch(kind, config).items()}
    model.to(device)

    def step(what: str, call: Any) -> None:
        try:
            shown.extend(tensors(call(), what))
        except Exception as error:
            shown.append(
                (
                    what,
                    f"{type(error).__name__}: {str(error).splitlines()[:1]}".replace(
                        device, "DEVICE"
                    ),
                )
            )

    def infer() -> Any:
        with torch.no_grad():
            return dict(model.eval()(**given))

    def train() -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        losses = []
        torch.manual_seed(7)
        for _ in range(2):
            loss = model.train()(**given).loss
            loss.backward()
            losses.append(loss)
            grads = {
                key: value.grad.clone()
                for key, value in model.named_parameters()
                if value.grad is not None
            }
            optimizer.step()
            optimizer.zero_grad()
        return {"loss": losses, "grad": grads, "weight": dict(model.named_parameters())}

    def write() -> Any:
        prompt = {key: value for key, value in given.items() if key != "labels"}
        return model.eval().generate(**prompt, max_new_tokens=8, min_new_tokens=8, do_sample=False)

    step("output", infer)
    step("training", train)
    if kind in ("writes", "translates"):
        step("tokens", write)
    return shown


def equal(a: torch.Tensor | str, b: torch.Tensor | str, close: bool = False) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a.split(":")[0] == b.split(":")[0]
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if close and a.is_floating_point():
        return torch.allclose(b, a, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    return torch.equal(bits(a), bits(b))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes: NaN is no number, and zeros have signs."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def told(value: torch.Tensor | str) -> str:
    return value if isinstance(value, str) else f"a tensor {tuple(value.shape)}"


def compare(theirs: list[Any], ours: list[Any], close: bool = False) -> str | None:
    """The first thing that differs, in words."""
    for (what, a), (other, b) in zip(theirs, ours, strict=False):
        if what != other or not equal(a, b, close):
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape:
                return f"{what}: off by {(a.double() - b.double()).abs().max().item():.3g}"
            return f"{what}: {told(a)}, and here {other}: {told(b)}"
    return None if len(theirs) == len(ours) else f"{len(theirs)} results, and here {len(ours)}"


def judge(
    kind: str,
    name: str,
    model_type: str,
    attention: str,
    devices: tuple[str, str],
    close: bool = False,
) -> tuple[str, str]:
    """`same`, `differs` or `not built`, and why."""
    reasons = []
    for variant in VARIANTS:

        def small(variant: dict[str, Any] = variant) -> Any:
            config = configuration(model_type, variant)
            if attention != "default":
                config._attn_implementation = attention
            return without_dropout(config) if close else config

        try:
            with torch.device("meta"):
                size = sum(
                    each.numel() for each in getattr(transformers, name)(small()).parameters()
                )
            if size > LARGEST:
                return "not built", f"{size} parameters"
            theirs = run(kind, name, small(), devices[0])
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {str(error)[:100]}")
            continue
        errors = [f"{what}: {value}" for what, value in theirs if isinstance(value, str)]
        if (errors and variant is not VARIANTS[-1]) or len(errors) == len(theirs):
            reasons += errors
            continue
        try:
            difference = compare(theirs, run(kind, name, small(), devices[1]), close)
        except Exception:
            difference = traceback.format_exc(limit=-1)
        return ("differs", difference) if difference else ("same", "; ".join(errors))
    return "not built", reasons[0]


def fallbacks(device: str) -> dict[str, int]:
    """How many calls of each operator a device left to the CPU."""
    if device.partition(":")[0] != "flagos":
        return {}
    from torch_fl.aten.routing import counters

    return {op: each["fallbacks"] for op, each in counters().items() if each["fallbacks"]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="model types, as llama or mixtral"
    )
    parser.add_argument("--reference", default="cpu", help="the device that is believed (cpu)")
    parser.add_argument("--device", default="flagos", help="the device that is tried (flagos)")
    parser.add_argument(
        "--attention",
        nargs="+",
        default=["default"],
        help="implementations of attention, as eager; default: what transformers chooses",
    )
    parser.add_argument(
        "--close",
        action="store_true",
        help="numbers that are close instead of equal bits, without dropout",
    )
    parser.add_argument(
        "--seconds", type=float, default=3600, help="begin no model after so many seconds"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there")
    arguments = parser.parse_args()
    started = time.monotonic()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    verdicts: dict[str, dict[str, str]] = {}
    count: collections.Counter[str] = collections.Counter()
    for kind, names in KINDS.items():
        for model_type, given in names.items():
            if arguments.only and model_type not in arguments.only:
                continue
            for attention in arguments.attention:
                if time.monotonic() - started > arguments.seconds:
                    break
                name = given if isinstance(given, str) else given[0]
                with contextlib.redirect_stdout(io.StringIO()):
                    devices = arguments.reference, arguments.device
                    verdict, why = judge(
                        kind, name, model_type, attention, devices, arguments.close
                    )
                count[verdict] += 1
                verdicts[f"{name} {attention}"] = {"verdict": verdict, "why": why}
                took = time.monotonic() - started
                print(f"{took:6.0f} s  {verdict:9}  {name} ({attention})  {why}", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(count.items())))
    for op, calls in fallbacks(arguments.device).items():
        print(f"{op} fell back to the CPU {calls} times")
    if arguments.json:
        arguments.json.write_text(json.dumps({"count": count, "models": verdicts}, indent=1) + "\n")
    return int(count["differs"] > 0 or not count["same"])


if __name__ == "__main__":
    sys.exit(main())

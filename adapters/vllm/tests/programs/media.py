"""Prompts with images and sounds: ``media.py KIND FOLDER OPTIONS`` writes a tiny model of the kind, and serves it.

Prompts have no, one and three images (or sounds) of several sizes, in one batch; some are in several prompts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import serving
import tiny
import torch

NEW = 12
SPECIAL = (
    *("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
    *("<image>", "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"),
)
_TEXT = {**tiny._SIZES, "num_hidden_layers": 2}


def tokenizer(**options: Any) -> Any:
    """One token for each byte, and one for each place of an image."""
    from transformers import PreTrainedTokenizerFast

    made = json.loads(tiny.tokenizer()._tokenizer.to_str())
    words = made["model"]["vocab"]
    last = {number: name for name, number in words.items()}
    for at, name in enumerate(SPECIAL, 300):
        del words[last[at]]
        words[name] = at
    made["added_tokens"] = [
        {
            "id": words[name],
            "content": name,
            "special": True,
            "normalized": False,
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
        }
        for name in SPECIAL
    ]
    from tokenizers import Tokenizer

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(made)),
        eos_token="<|255|>",
        pad_token="<|254|>",
        **options,
    )


def picture(seed: int, width: int, height: int) -> Any:
    """Noise in colour."""
    from PIL import Image

    numbers = np.random.default_rng(seed)
    return Image.fromarray(numbers.integers(0, 256, (height, width, 3), dtype=np.uint8))


def sound(seed: int, seconds: float) -> Any:
    """Noise, and its samples a second."""
    numbers = np.random.default_rng(seed)
    return 0.1 * numbers.standard_normal(int(seconds * 16000)).astype(np.float32)


def qwen3_vl() -> tuple[Any, Any]:
    """An encoder of two blocks, of which the first also goes to a layer of the text; rotary places in three axes."""
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    words = tokenizer()
    config = Qwen3VLConfig(
        text_config={
            **_TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "num_heads": 2,
            "intermediate_size": 128,
            "patch_size": 8,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            "out_hidden_size": 128,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
            "initializer_range": 0.15,
        },
        image_token_id=300,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
        tie_word_embeddings=False,
    )
    sizes = {"patch_size": 8, "temporal_patch_size": 2, "merge_size": 2}
    limits = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
    words.image_token, words.video_token = SPECIAL[:2]
    words.vision_start_token, words.vision_end_token = SPECIAL[2:4]
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**sizes, size=limits),
        tokenizer=words,
        video_processor=Qwen3VLVideoProcessor(**sizes, size=limits),
    )
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(config).float().eval(), processor


def llava() -> tuple[Any, Any]:
    """CLIP's encoder before Llama; the features are those of its last layer but one."""
    from transformers import (
        CLIPImageProcessor,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    text = {name: value for name, value in _TEXT.items() if name != "num_key_value_heads"}
    config = LlavaConfig(
        text_config={"model_type": "llama", **text},
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "projection_dim": 64,
            "initializer_range": 0.15,
        },
        image_token_id=304,
        image_token_index=304,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessor(**sizes),
        tokenizer=tokenizer(),
        patch_size=8,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    )
    torch.manual_seed(0)
    return LlavaForConditionalGeneration(config).float().eval(), processor


def name_as_published(folder: str, theirs: str, published: str) -> None:
    """Gives weights the names that published ones have, where transformers 5 writes others."""
    from safetensors.torch import load_file, save_file

    (file,) = Path(folder).glob("*.safetensors")
    weights = {n.replace(theirs, published): weight for n, weight in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})


def qwen2_audio() -> tuple[Any, Any]:
    """An encoder as Whisper's before Qwen2."""
    from transformers import (
        Qwen2AudioConfig,
        Qwen2AudioForConditionalGeneration,
        Qwen2AudioProcessor,
        WhisperFeatureExtractor,
    )

    text = {name: value for name, value in _TEXT.items() if name != "head_dim"}
    text["max_position_embeddings"] = 1024
    config = Qwen2AudioConfig(
        text_config={"model_type": "qwen2", **text},
        audio_config={
            "model_type": "qwen2_audio_encoder",
            "d_model": 64,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "num_mel_bins": 80,
            "initializer_range": 0.15,
        },
        audio_token_index=306,
    )
    processor = Qwen2AudioProcessor(
        feature_extractor=WhisperFeatureExtractor(), tokenizer=tokenizer()
    )
    torch.manual_seed(0)
    return Qwen2AudioForConditionalGeneration(config).float().eval(), processor


@dataclass(frozen=True)
class Kind:
    """A model, the words for a place of its medium, three of the medium, and what both libraries call it."""

    make: Callable[[], tuple[Any, Any]]
    place: str
    media: Callable[[], tuple[Any, Any, Any]]
    vllms: str
    processors: str
    limits: dict[str, int]
    names: tuple[str, str] | None = (
        None  # a part of its weights' names as written, and as published
    )


def _pictures() -> tuple[Any, Any, Any]:
    return picture(1, 32, 32), picture(2, 48, 32), picture(3, 40, 64)


def _sounds() -> tuple[Any, Any, Any]:
    return sound(1, 0.5), sound(2, 1.0), sound(3, 1.7)


_VISION = "<|vision_start|><|image_pad|><|vision_end|>"
KINDS = {
    "qwen3_vl": Kind(qwen3_vl, _VISION, _pictures, "image", "images", {"image": 3, "video": 0}),
    "llava": Kind(
        llava,
        "<image>",
        _pictures,
        "image",
        "images",
        {"image": 3},
        ("vision_tower.", "vision_tower.vision_model."),
    ),
    "qwen2_audio": Kind(
        qwen2_audio,
        "<|audio_bos|><|AUDIO|><|audio_eos|>",
        _sounds,
        "audio",
        "audio",
        {"audio": 3},
        ("language_model.model.model.", "language_model.model."),
    ),
}


def prompts(kind: Kind) -> list[tuple[str, list[Any]]]:
    """Text and media of each prompt."""
    place, (one, two, three) = kind.place, kind.media()
    return [
        (f"{place}what is it?", [one]),
        ("nothing to see", []),
        (f"first {place} then {place} and {place}.", [one, two, three]),
        (f"{place}what is it?", [two]),
        (f"again {place}", [one]),
    ]


def greedy(kind: Kind, model: Any, processor: Any, text: str, media: list[Any]) -> list[int]:
    """What transformers generates."""
    given = processor(
        text=[text], return_tensors="pt", **({kind.processors: media} if media else {})
    )
    found = model.generate(
        **given, max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    return list(found[0, given["input_ids"].shape[1] :].tolist())


def given(kind: Kind, text: str, media: list[Any]) -> dict[str, Any]:
    """A prompt of vLLM."""
    return {"prompt": text} | ({"multi_modal_data": {kind.vllms: media}} if media else {})


def write(kind: Kind, folder: str) -> list[list[int]]:
    """Writes the model with its processor, and returns what transformers generates of each prompt."""
    model, processor = kind.make()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    if kind.names is not None:
        name_as_published(folder, *kind.names)
    return [greedy(kind, model, processor, *prompt) for prompt in prompts(kind)]


def served(kind: Kind, folder: str, **options: Any) -> Any:
    """The model under vLLM."""
    sizes = {"max_num_batched_tokens": 128}
    if kind.vllms == "audio":  # vLLM tries the longest that the encoder takes, half a minute
        sizes = {"max_num_batched_tokens": 1024, "max_model_len": 1024}
    return serving.llm(
        folder,
        **{
            "skip_tokenizer_init": False,
            "limit_mm_per_prompt": kind.limits,
            **sizes,
            **options,
        },
    )


def counted(llm: Any) -> list[int]:
    """How many media the encoder of a model in this process gets, call by call."""
    calls: list[int] = []
    executor = getattr(llm.llm_engine, "model_executor", None)
    if hasattr(executor, "driver_worker"):
        model = executor.driver_worker.worker.model_runner.model
        own = model.embed_multimodal

        def embed(*args: Any, **options: Any) -> Any:
            made = own(*args, **options)
            calls.append(len(made))
            return made

        model.embed_multimodal = embed
    return calls


if __name__ == "__main__":
    from vllm import SamplingParams

    kind, folder = KINDS[sys.argv[1]], str(Path(sys.argv[2]) / sys.argv[1])
    expected = write(kind, folder)
    if os.environ.get("TRITON_INTERPRET") == "1":
        import interpreted

        interpreted.prepare()
    llm = served(kind, folder, **json.loads(sys.argv[3]))
    options = SamplingParams(
        temperature=0.0, max_tokens=NEW, ignore_eos=True, detokenize=False, logprobs=1
    )
    encoded = counted(llm)
    found = [
        [
            output.outputs[0]
            for output in llm.generate([given(kind, *p) for p in some], options, use_tqdm=False)
        ]
        for some in (prompts(kind), prompts(kind)[::-1])
    ]
    found[1].reverse()
    tokens, again = ([list(one.token_ids) for one in some] for some in found)
    serving.report(
        llm,
        expected=expected,
        tokens=tokens,
        again=again,
        logprobs=[serving.logprobs_of(one) for some in found for one in some],
        encoded=sum(encoded),
    )

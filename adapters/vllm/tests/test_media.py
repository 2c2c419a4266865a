"""Media of a request in shapes that the model's encoder does not take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_flagos import media

pytestmark = pytest.mark.host
QWEN = SimpleNamespace(
    vision_config=SimpleNamespace(
        patch_size=8, temporal_patch_size=2, in_channels=3, spatial_merge_size=2
    )
)
CLIP = SimpleNamespace(vision_config=SimpleNamespace(model_type="clip_vision_model", image_size=32))
WHISPER = SimpleNamespace(audio_config=SimpleNamespace(num_mel_bins=80, max_source_positions=1500))


def given(modality: str, length: int, **fields: Any) -> dict[str, Any]:
    """The inputs of a prompt with one medium, and one that the engine has already."""
    item = {name: SimpleNamespace(data=value) for name, value in fields.items()}
    place = SimpleNamespace(length=length)
    return {"mm_kwargs": {modality: [None, item]}, "mm_placeholders": {modality: [place, place]}}


def qwen(size: int, length: int) -> dict[str, Any]:
    grid = torch.tensor([1, 4, 4])
    return given("image", length, pixel_values=torch.ones(16, size), image_grid_thw=grid)


RIGHT = {
    "patches": (QWEN, qwen(384, 4)),
    "pixels": (CLIP, given("image", 16, pixel_values=torch.ones(3, 32, 32))),
    "sounds": (WHISPER, given("audio", 9, input_features=torch.ones(80, 3000))),
    "words": (QWEN, {"prompt_token_ids": [1]}),
}
WRONG = {
    "patches": (QWEN, qwen(54, 4), "image 1 of the prompt: its patches have 54 numbers"),
    "places": (QWEN, qwen(384, 16), "its grid is [1, 4, 4], and it has 16 places"),
    "pixels": (
        CLIP,
        given("image", 16, pixel_values=torch.ones(3, 64, 64)),
        "its pixels are [64, 64], and the model's [32, 32]",
    ),
    "bins": (
        WHISPER,
        given("audio", 9, input_features=torch.ones(40, 3000)),
        "its features are [40, 3000], and the model's [80, 3000]",
    ),
}


@pytest.mark.parametrize(("config", "inputs"), RIGHT.values(), ids=RIGHT)
def test_what_the_encoder_takes(config: Any, inputs: dict[str, Any]) -> None:
    media.require(config, inputs)


@pytest.mark.parametrize(("config", "inputs", "words"), WRONG.values(), ids=WRONG)
def test_what_would_end_the_engine(config: Any, inputs: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="leave mm_processor_kwargs out") as refusal:
        media.require(config, inputs)
    assert words in str(refusal.value)

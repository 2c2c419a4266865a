"""Images and sounds of one request, whose options of processors can give them shapes that end vLLM's engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def require(config: Any, inputs: Any) -> None:
    """Raises ValueError for media in other shapes than the model's encoder takes, before the engine has them."""
    items = inputs.get("mm_kwargs") if isinstance(inputs, Mapping) else None
    for modality, given in (items or {}).items():
        for at, item in enumerate(given):
            # None stands for what the engine has in its cache already.
            fields = {name: one.data for name, one in (item or {}).items()}
            places = (inputs.get("mm_placeholders") or {}).get(modality, ())
            length = places[at].length if at < len(places) else None
            for wrong in _wrong(config, modality, fields, length):
                raise ValueError(
                    f"{modality} {at} of the prompt: {wrong}; leave mm_processor_kwargs out"
                )


def _wrong(config: Any, modality: str, fields: dict[str, Any], length: int | None) -> Iterator[str]:
    vision, audio = (getattr(config, f"{kind}_config", None) for kind in ("vision", "audio"))
    pixels, grid = fields.get("pixel_values"), fields.get("image_grid_thw")
    if isinstance(pixels, Tensor) and vision is not None:
        depth, patch = (getattr(vision, n, None) for n in ("temporal_patch_size", "patch_size"))
        side = getattr(vision, "image_size", None)
        clips = getattr(vision, "model_type", "").startswith("clip")
        if isinstance(grid, Tensor) and isinstance(depth, int) and isinstance(patch, int):
            channels = getattr(vision, "in_channels", getattr(vision, "in_chans", 3))
            size = channels * depth * patch**2
            if pixels.shape[-1] != size:
                yield f"its patches have {pixels.shape[-1]} numbers, and the model's {size}"
            merged = getattr(vision, "spatial_merge_size", 1) ** 2
            if length is not None and length != int(grid.prod()) // merged:
                yield f"its grid is {grid.tolist()}, and it has {length} places in the prompt"
        elif isinstance(side, int) and clips and tuple(pixels.shape[-2:]) != (side, side):
            yield f"its pixels are {list(pixels.shape[-2:])}, and the model's {[side, side]}"
    sound, bins = fields.get("input_features"), getattr(audio, "num_mel_bins", None)
    frames = getattr(audio, "max_source_positions", None)
    if modality == "audio" and isinstance(sound, Tensor) and isinstance(bins, int):
        shape = [bins, 2 * frames if frames else sound.shape[-1]]
        if list(sound.shape[-2:]) != shape:
            yield f"its features are {list(sound.shape[-2:])}, and the model's {shape}"

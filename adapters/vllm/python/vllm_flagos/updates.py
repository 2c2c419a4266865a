"""New values of weights in a model that serves, as trainers send them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor


def load(runner: Any, model_config: Any, weights: Iterable[Any] | str) -> int:
    """Loads them into the model of a runner. Raises ValueError before anything is changed."""
    given = _of_file(weights) if isinstance(weights, str) else list(weights)
    wrong = list(_wrong(given, published(model_config.model)))
    if wrong:
        shown = "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else "")
        raise ValueError(f"no weight was changed: {shown}")
    model = runner.get_model()
    if model_config.quantization is None:
        model.load_weights(iter(given))
        runner.reset_encoder_cache()
        runner.reset_mm_cache()
    else:  # which quantizes again what the model has in other types than the checkpoint
        runner.reload_weights(weights_iterator=iter(given))
    return len(given)


def _of_file(name: str) -> list[Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return list(load_file(name).items())
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"no weight was changed: {name} is no file of safetensors: {error}"
        ) from error


def _wrong(given: list[Any], known: dict[str, tuple[int, ...]]) -> Iterator[str]:
    seen: set[str] = set()
    for entry in given:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            yield f"{str(entry)[:40]} is no pair of a name and a tensor"
            continue
        name, value = entry
        if not isinstance(value, Tensor):
            yield f"{name} is {type(value).__name__}, not a tensor"
        elif name in seen:
            yield f"{name} is there twice"
        elif known and name not in known:
            yield f"the checkpoint has no {name}"
        elif known and tuple(value.shape) != known[name]:
            yield f"{name} is {list(value.shape)}, and the checkpoint's {list(known[name])}"
        seen.add(name)


def published(folder: str) -> dict[str, tuple[int, ...]]:
    """Name → shape of each weight of a model in a folder, by the heads of its safetensors; nothing without these."""
    found: dict[str, tuple[int, ...]] = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        with file.open("rb") as opened:
            head = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        found |= {
            name: tuple(entry["shape"]) for name, entry in head.items() if name != "__metadata__"
        }
    return found

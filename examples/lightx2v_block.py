"""Runs an attention block out of LightX2V's tables, and shows which kernel serves each of its operators.

PYTHONPATH=LightX2V python examples/lightx2v_block.py

LightX2V, which is used from a clone, makes its models of classes that it finds in tables under the names of a
configuration. With `PLATFORM=flagos` the adapter has put its own classes there. docs/lightx2v.md makes a
video.
"""

import os
import sys

import torch

os.environ["PLATFORM"] = "flagos"  # LightX2V reads it when it is imported
try:
    import lightx2v.utils.registry_factory as tables
except ImportError as missing:
    sys.exit(
        f"this example needs LightX2V (no module {missing.name}): clone ModelTC/LightX2V from GitHub, install its "
        "requirements, and name the clone in PYTHONPATH"
    )

import flagos

DIM, HEADS, TOKENS = 64, 4, 24


def weights() -> dict[str, torch.Tensor]:
    """Random weights of one block, under the names of a checkpoint."""
    drawn = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {f"blocks.0.{name}.weight": (DIM, DIM) for name in "qkvo"}
    shapes |= {f"blocks.0.{name}.bias": (DIM,) for name in "qkvo"}
    shapes |= {f"blocks.0.norm_{name}.weight": (DIM,) for name in "qk"}
    random = {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}
    return {name: (w * DIM**-0.5).bfloat16().to("flagos") for name, w in random.items()}


def main() -> None:
    linear = tables.MM_WEIGHT_REGISTER["flagos"]
    norm = tables.RMS_WEIGHT_REGISTER["flagos_rms_norm"]
    attention = tables.ATTN_WEIGHT_REGISTER["flagos_flash_attn"]()
    layers = {name: linear(f"blocks.0.{name}.weight", f"blocks.0.{name}.bias") for name in "qkvo"}
    norms = {name: norm(f"blocks.0.norm_{name}.weight") for name in "qk"}
    checkpoint = weights()
    for layer in (*layers.values(), *norms.values()):
        layer.load(checkpoint)

    x = torch.randn(TOKENS, DIM, generator=torch.Generator().manual_seed(1)).bfloat16().to("flagos")
    q, k = (norms[name].apply(layers[name].apply(x)).view(TOKENS, HEADS, -1) for name in "qk")
    v = layers["v"].apply(x).view(TOKENS, HEADS, -1)
    y = layers["o"].apply(attention.apply(q=q, k=k, v=v))
    print(f"{tuple(y.shape)} {y.dtype} on {y.device}, finite: {bool(y.isfinite().all())}")
    for operator, counted in sorted(flagos.counters().items()):
        if operator.startswith("lightx2v::"):
            print(f"{str(flagos.explain(operator)).splitlines()[0]}: {counted}")


if __name__ == "__main__":
    main()

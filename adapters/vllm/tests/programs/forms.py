"""vLLM's Triton kernels of these forms of models beside the references: ``forms.py``.

They are those of weights of integers, of latent attention, of encoders, and of norms with a gate.

The test starts it with TRITON_INTERPRET=1 and CUDA_VISIBLE_DEVICES="", by which vLLM uses Triton without a driver; on a
device that Triton reaches it runs as it is. It reports the greatest difference of each from the reference, relative to
the reference's largest number.
"""

from __future__ import annotations

import os
from typing import Any

import serving
import torch
from torch import Tensor

numbers = torch.Generator().manual_seed(3)
Case = tuple[str, list[Any], dict[str, Any]]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=numbers)


def integers(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=numbers)


def some_bits(*shape: int) -> Tensor:
    return integers(-(2**31), 2**31, *shape).int()


def product(zeros: bool) -> Case:
    """5 tokens by a weight [64, 48] in two groups."""
    x, scales = normal(5, 64).half(), (0.01 + 0.01 * normal(2, 48).abs()).half()
    return (
        "group_quantized_mm",
        [
            x,
            some_bits(64, 6),
            scales,
            some_bits(2, 6) if zeros else None,
            None,
            4,
            0 if zeros else 8,
        ],
        {},
    )


def experts(form: str, zeros: bool = False) -> Case:
    """4 experts of 64 over 7 tokens of 64, two for each."""
    count, hidden, middle, group = 4, 64, 64, 32
    x = normal(7, hidden).half()
    chosen = torch.stack([torch.randperm(count, generator=numbers)[:2] for _ in range(7)]).int()
    shares = torch.softmax(normal(7, 2), -1)
    given: list[Any] = []
    for out, into in ((2 * middle, hidden), (hidden, middle)):
        if form == "w8a8":
            given.append(
                (
                    integers(-127, 128, count, out, into).to(torch.int8),
                    0.001 * normal(count, out, 1).abs(),
                    None,
                )
            )
            continue
        per = 2 if form == "w4a16" else 1
        given.append(
            (
                integers(0, 256, count, out, into // per).to(torch.uint8),
                (0.001 + 0.001 * normal(count, out, into // group).abs()).half(),
                integers(0, 256, count, out // per, into // group).to(torch.uint8)
                if zeros
                else None,
            )
        )
    (w13, s13, z13), (w2, s2, z2) = given
    return "quantized_experts", [x, w13, w2, s13, s2, z13, z2, shares, chosen, "silu", form], {}


def latent() -> Case:
    """Three sequences of 1, 16 and 37 tokens, and rows of 64 and 16 numbers for four heads."""
    rows = normal(8, 16, 1, 80).half()
    table = torch.tensor([[1, 0, 0], [2, 0, 0], [3, 5, 7]], dtype=torch.int32)
    lengths = torch.tensor([1, 16, 37], dtype=torch.int32)
    one = torch.ones(1)
    return (
        "latent_attention",
        [
            *(normal(3, 4, 80).half(), rows, None, torch.zeros(3, 4, 64).half()),
            *(torch.zeros(3, 4).half(), table, lengths, torch.empty(3, 4, 2, 65), 2, 0.11, 16),
        ],
        {"k_scale": one, "v_scale": one, "is_mla": True},
    )


def expanded() -> Case:
    """Two prompts of 5 and 19 tokens, four heads of 48 with values of 32."""
    starts = torch.tensor([0, 5, 24], dtype=torch.int32)
    q, k, v = (normal(24, 4, size).half() for size in (48, 48, 32))
    return "expanded_attention", [q, k, v, starts, starts, 19, 19, 0.14, True], {}


def encoded() -> Case:
    """Two images of 12 and 20 patches, two heads of 32 that see all of theirs."""
    starts = torch.tensor([0, 12, 32], dtype=torch.int32)
    q, k, v = (normal(32, 2, 32).half() for _ in range(3))
    return "expanded_attention", [q, k, v, starts, starts, 20, 20, 0.18, False], {}


def rotated() -> Case:
    """Queries and keys of two images, two heads of 32."""
    angles = normal(20, 16)
    return (
        "rotate",
        [normal(2, 20, 2, 32).half(), angles.cos().half(), angles.sin().half(), False],
        {},
    )


def in_three_axes(interleaved: bool) -> Case:
    """Seven tokens, four heads of queries and two of keys, of 32 numbers, all of which turn."""
    angles = normal(3, 7, 16)
    return (
        "rotate_in_three_axes",
        [
            *(
                normal(7, 128).half(),
                normal(7, 64).half(),
                angles.cos().half(),
                angles.sin().half(),
            ),
            *([6, 5, 5], 32, 32, interleaved, True),
        ],
        {},
    )


def gated(norm_before_gate: bool) -> Case:
    """Five tokens of three heads of 32."""
    x, gate, weight = normal(5, 3, 32).half(), normal(5, 3, 32).half(), normal(32).half()
    return "gated_rms_norm", [x, gate, weight, 1e-5, None, norm_before_gate, "silu"], {}


def merged() -> Case:
    """Six tokens with parts of a context, of which the first two sequences are: one has none."""
    one, other = normal(6, 4, 32), normal(6, 4, 32)
    sums = normal(4, 6)
    sums[:, 2] = float("-inf")
    return "merge_attention", [torch.zeros(6, 4, 32), one, sums, other, normal(4, 6)], {}


def masked() -> Case:
    """Three sequences of queries, of which the second has no context."""
    starts = torch.tensor([0, 2, 5, 6], dtype=torch.int32)
    return (
        "mask_empty_context",
        [normal(4, 6), normal(6, 4, 8), starts, torch.tensor([0, 3, 3, 7]).int()],
        {},
    )


WRITTEN = {
    "latent_attention": (3, 4),
    "merge_attention": (0,),
    "mask_empty_context": (0, 1),
    "rotate_in_three_axes": (0, 1),
}
CASES = {
    "product": lambda: product(False),
    "product with zeros": lambda: product(True),
    "experts w4a16": lambda: experts("w4a16"),
    "experts w4a16 with zeros": lambda: experts("w4a16", zeros=True),
    "experts w8a16": lambda: experts("w8a16"),
    "experts w8a8": lambda: experts("w8a8"),
    "latent": latent,
    "expanded": expanded,
    "encoded": encoded,
    "rotated": rotated,
    "in three axes": lambda: in_three_axes(False),
    "in three axes, in turns": lambda: in_three_axes(True),
    "gate after a norm": lambda: gated(True),
    "gate before a norm": lambda: gated(False),
    "merged": merged,
    "masked": masked,
}


def computed(case: Case, kind: str) -> list[Tensor]:
    """What an implementation returns or writes."""
    import flagos
    from vllm_flagos import operators

    name, given, options = case
    moved: dict[int, Any] = {}

    def to_device(each: Any) -> Any:
        if not isinstance(each, Tensor):
            return each
        if id(each) not in moved:
            moved[id(each)] = each.clone().to("flagos")
        return moved[id(each)]

    arguments = [to_device(each) for each in given]
    if name == "latent_attention":  # values are the first part of the rows
        arguments[2] = arguments[1][..., :64]
    with flagos.route({f"vllm::{name}": f"impl:{kind}.{name}"}):
        result = getattr(operators, name)(
            *arguments, **{k: to_device(v) for k, v in options.items()}
        )
    found = [arguments[at] for at in WRITTEN[name]] if name in WRITTEN else [result]
    return [each.cpu().float() for each in found]


if __name__ == "__main__":
    import vllm.platforms
    from vllm.config import VllmConfig, set_current_vllm_config

    assert vllm.platforms.current_platform.device_type == "flagos"
    from vllm_flagos import completions, releases
    from vllm_flagos.operators import rotary

    if rotary.missing() is not None:
        del CASES["rotated"]
    if not releases.installed().masks_empty_contexts:
        del CASES["masked"]
    if os.environ.get("TRITON_INTERPRET") == "1":  # which multiplies no bfloat16
        from interpreted import complete_interpreter

        complete_interpreter()
        del CASES["experts w8a8"]  # whose kernel calls the library of CUDA's devices
    torch.set_default_device("cpu")
    found: dict[str, float] = {}
    with set_current_vllm_config(VllmConfig()):
        completions.install(latent=True)
        for name, make in CASES.items():
            case = make()
            kernel = "flash_attention" if name == "rotated" else "triton"
            ours, theirs = computed(case, kernel), computed(case, "reference")
            differences = [
                (torch.nan_to_num(a, neginf=-9) - torch.nan_to_num(b, neginf=-9)).abs().max().item()
                / max(1e-9, torch.nan_to_num(b, neginf=-9).abs().max().item())
                for a, b in zip(ours, theirs, strict=True)
            ]
            found[name] = max(differences)
            assert all(each.abs().sum() > 0 for each in theirs), name
    serving.report(differences=found)

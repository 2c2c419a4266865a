"""Kernels of SGLang's wheel beside the references of their operators, on a GPU with the wheel on the path."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sglang_flagos import operators
from sglang_flagos.operators import wheel

pytestmark = pytest.mark.skipif(wheel.missing() is not None, reason=str(wheel.missing()))


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16).to("flagos")


@pytest.mark.parametrize(
    ("tokens", "chosen", "count", "block"), [(1, 8, 128, 16), (700, 8, 128, 64), (33, 2, 4, 16)]
)
def test_chosen_experts_in_blocks(tokens: int, chosen: int, count: int, block: int) -> None:
    experts = torch.randint(-1, count, (tokens, chosen), dtype=torch.int32).to("flagos")
    ours, theirs = (
        operators.align_experts.implementation(f"{backend}.align_experts")(experts, count, block)
        for backend in ("reference", "sgl_kernel")
    )
    total = int(ours[2])
    assert int(theirs[2]) == total
    blocks = total // block
    assert torch.equal(ours[1][:blocks].cpu(), theirs[1][:blocks].cpu())
    # The order within an expert is the kernel's own.
    expert = ours[1][:blocks].cpu().repeat_interleave(block).long() * (experts.numel() + 1)
    one, other = (expert + each[0][:total].cpu() for each in (ours, theirs))
    assert torch.equal(one.sort().values, other.sort().values)


@pytest.mark.skipif(wheel.attention_missing() is not None, reason=str(wheel.attention_missing()))
@pytest.mark.parametrize("window", [-1, 15])
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("queries", [[1, 1, 1], [5, 70, 33]])
def test_attention(queries: list[int], size: int, window: int) -> None:
    keys, heads, kv = [40, 900, 33], 8, 2
    pool = 2048
    k, v = (_random(pool, 1, kv, size) for _ in range(2))
    q = _random(sum(queries), heads, size)
    table = torch.stack([torch.randperm(pool)[: max(keys)] for _ in keys]).int().to("flagos")
    starts = torch.tensor([0, *torch.tensor(queries).cumsum(0).tolist()]).int().to("flagos")
    found = []
    for backend in ("flash_attention_3", "reference"):
        out = torch.full_like(q, torch.nan)
        operators.paged_attention.implementation(f"{backend}.paged_attention")(
            *(q, k, v, out, starts, max(queries)),
            *(torch.tensor(keys).int().to("flagos"), max(keys), size**-0.5, True),
            *((window, 0) if window > -1 else (-1, -1), table, 0.0, None, None, None),
        )
        found.append(out.cpu())
    torch.testing.assert_close(*found, rtol=2**-6, atol=2**-7)

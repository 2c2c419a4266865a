"""Our classes as LightX2V makes and uses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lightx2v_fl import operators

pytestmark = pytest.mark.usefixtures("lightx2v")


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def table(name: str) -> Any:
    import lightx2v.utils.registry_factory as tables

    return getattr(tables, name)


def test_entries_are_shown_by_the_class_they_stand_for() -> None:
    entry = table("ROPE_REGISTER")["flagos_rope"]
    assert repr(entry) == "<lightx2v_fl.modules.rope.FlagosRope>"
    assert entry.__name__ == "FlagosRope" and callable(entry)
    assert entry._rotate is entry.target._rotate  # LightX2V asks the class for it


def test_linear(device: str) -> None:
    weights = {"blocks.0.q.weight": drawn(12, 16), "blocks.0.q.bias": drawn(12, seed=1)}
    layer = table("MM_WEIGHT_REGISTER")["flagos"](*weights)
    layer.load({name: w.to(device) for name, w in weights.items()})
    x = drawn(5, 16, seed=2)
    expected = torch.nn.functional.linear(x, *weights.values())
    assert torch.equal(layer.apply(x.to(device)).cpu(), expected)
    assert operators.linear.calls == {"torch.linear": 1}


def test_linear_with_lora_and_differences() -> None:
    weights = {"blocks.0.q.weight": drawn(12, 16), "blocks.0.q.bias": drawn(12, seed=1)}
    layer = table("MM_WEIGHT_REGISTER")["flagos"](*weights, lora_prefix="model.blocks")
    layer.load(dict(weights))
    lora = {
        "model.blocks.0.q.lora_down.weight": drawn(2, 16, seed=3),
        "model.blocks.0.q.lora_up.weight": drawn(12, 2, seed=4),
        "model.blocks.0.q.alpha": torch.tensor(4.0),
        "model.blocks.0.q.diff": drawn(12, 16, seed=5),
        "model.blocks.0.q.diff_b": drawn(12, seed=6),
    }
    layer.register_lora(lora, 0.5)
    layer.register_diff(lora)
    x = drawn(5, 16, seed=2)
    down, up, _, diff, diff_b = (w.double() for w in lora.values())
    weight, bias = (w.double() for w in weights.values())
    # alpha / rank is 2, the strength a half
    expected = x.double() @ (weight + diff + up @ down).t() + bias + diff_b
    torch.testing.assert_close(layer.apply(x).double(), expected, rtol=5e-2, atol=0.15)
    assert (layer.apply(x).double() - x.double() @ weight.t()).norm() / expected.norm() > 0.5


@pytest.mark.parametrize(("scheme", "bound"), [("flagos-fp8", 0.05), ("flagos-int8", 0.015)])
@pytest.mark.parametrize("quantized_before", [False, True])
def test_eight_bits(scheme: str, bound: float, quantized_before: bool, device: str) -> None:
    entry = table("MM_WEIGHT_REGISTER")[scheme]
    weight, bias, x = drawn(48, 64), drawn(48, seed=1), drawn(7, 64, seed=2)
    weights = {"blocks.0.q.weight": weight, "blocks.0.q.bias": bias}
    if quantized_before:
        eight, scale = entry.quantize(weight)
        weights |= {"blocks.0.q.weight": eight, "blocks.0.q.weight_scale": scale}
    layer = entry("blocks.0.q.weight", "blocks.0.q.bias")
    layer.load({name: w.to(device) for name, w in weights.items()})
    assert layer.weight.dtype == entry.dtype and layer.weight.shape == (64, 48)
    assert layer.weight.to(device).stride() == (1, 64)  # as products take it; moving it keeps that
    expected = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
    error = (layer.apply(x.to(device)).cpu().float() - expected).norm() / expected.norm()
    assert 0 < error < bound


def test_eight_bits_without_their_scales_are_refused() -> None:
    entry = table("MM_WEIGHT_REGISTER")["flagos-int8"]
    layer = entry("blocks.0.q.weight", None)
    with pytest.raises(KeyError, match=r"no blocks\.0\.q\.weight_scale"):
        layer.load({"blocks.0.q.weight": torch.zeros(4, 4, dtype=torch.int8)})
    with pytest.raises(TypeError, match=r"takes torch\.int8 with scales"):
        layer.load({"blocks.0.q.weight": torch.zeros(4, 4, dtype=torch.float8_e4m3fn)})
    with pytest.raises(ValueError, match="merge this LoRA before it quantizes"):
        layer.register_diff({layer.weight_diff_name: torch.zeros(4, 4)})


def test_rms_norm_takes_what_wan_gives_it(device: str) -> None:
    entry = table("RMS_WEIGHT_REGISTER")["flagos_rms_norm"]
    norm = entry("w", False, False, False, None, lora_prefix="blocks", lora_path=None)
    norm.load({"w": drawn(16).to(device)})
    x = drawn(5, 16, seed=1)
    expected = torch.nn.functional.rms_norm(x, (16,), drawn(16), 1e-6)
    assert torch.equal(norm.apply(x.to(device)).cpu(), expected)
    assert entry(None).apply(x).shape == x.shape  # a norm without a weight


def test_the_norm_that_lightx2v_names_itself_takes_our_tensors(device: str) -> None:
    """An offloaded text encoder asks for `sgl-kernel`, whatever the configuration says."""
    from lightx2v.common.ops.norm.rms_norm_weight import RMSWeightSgl

    norm = RMSWeightSgl("w")
    norm.load({"w": drawn(16).to(device)})
    expected = torch.nn.functional.rms_norm(drawn(5, 16, seed=1), (16,), drawn(16), 1e-6)
    result = norm.apply(drawn(5, 16, seed=1).to(device)).cpu()
    torch.testing.assert_close(result, expected)
    assert operators.rms_norm.calls == ({"torch.rms_norm": 1} if device == "flagos" else {})


def test_rms_norm_over_ranks_is_over_whole_rows() -> None:
    entry = table("RMS_WEIGHT_REGISTER")["flagos_rms_norm"]
    norm = entry(weight_name="w", tp_group=None, tp_rank=0, tp_size=2)
    norm.load({"w": torch.ones(8)})
    half = drawn(3, 8, dtype=torch.float32)
    expected = half / (half.square().sum(-1, keepdim=True) / 16 + 1e-6).sqrt()
    torch.testing.assert_close(norm.apply(half), expected)


def test_layer_norm(device: str) -> None:
    norm = table("LN_WEIGHT_REGISTER")["flagos_layer_norm"]()
    x = drawn(5, 16) + 2
    expected = torch.nn.functional.layer_norm(x, (16,), eps=1e-6)
    assert torch.equal(norm.apply(x.to(device)).cpu(), expected)


class TestRope:
    """Every form of angles, of positions and of layouts."""

    def rope(self, layout: str = "interleaved") -> Any:
        return table("ROPE_REGISTER")["flagos_rope"](layout=layout, compute_dtype=torch.float32)

    def given(self) -> tuple[Tensor, Tensor, Tensor]:
        q, k = drawn(6, 2, 8), drawn(6, 2, 8, seed=1)
        return q, k, drawn(6, 4, seed=2, dtype=torch.float32)

    def test_all_forms_of_angles_are_one(self, device: str) -> None:
        q, k, angles = self.given()
        cos, sin = angles.cos(), angles.sin()
        forms = {
            "complex": torch.polar(torch.ones_like(angles), angles).unsqueeze(1),
            "pair": (cos, sin),
            "doubled": (cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)),
            "side by side": torch.cat((cos, sin), -1),
        }
        results = []
        for form in forms.values():
            there = (
                tuple(f.to(device) for f in form) if isinstance(form, tuple) else form.to(device)
            )
            results.append(self.rope().apply(q.to(device), k.to(device), there))
        for q_, k_ in results[1:]:
            torch.testing.assert_close(q_, results[0][0])
            torch.testing.assert_close(k_, results[0][1])
        assert not torch.equal(results[0][0].cpu(), q)

    def test_positions_choose_the_angles(self) -> None:
        q, k, angles = self.given()
        freqs = torch.polar(torch.ones_like(angles), angles)
        positions = torch.tensor([5, 0, 3, 3, 1, 2])
        chosen = self.rope().apply(q, k, freqs, positions=positions)
        direct = self.rope().apply(q, k, freqs[positions])
        assert all(torch.equal(a, b) for a, b in zip(chosen, direct, strict=True))

    @pytest.mark.parametrize("layout", ["interleaved", "split_half"])
    def test_what_is_beyond_the_rotated_part_stays(self, layout: str) -> None:
        q, _, angles = self.given()
        freqs = torch.polar(torch.ones(6, 2), angles[:, :2])
        turned = self.rope(layout).apply_single(q, freqs, rotary_dim=4)
        assert torch.equal(turned[..., 4:], q[..., 4:])
        whole = self.rope(layout).apply_single(q[..., :4].contiguous(), freqs)
        assert torch.equal(turned[..., :4], whole)

    def test_an_odd_part_is_refused(self) -> None:
        q, _, angles = self.given()
        with pytest.raises(ValueError, match="rotary_dim must be even and at most 8, not 3"):
            self.rope().apply_single(q, (angles.cos(), angles.sin()), rotary_dim=3)


class TestAttention:
    """Attention of one sequence, of batches and of packed sequences, with the options that change its result."""

    def attention(self) -> Any:
        return table("ATTN_WEIGHT_REGISTER")["flagos_flash_attn"]()

    def given(self, *shape: int) -> tuple[Tensor, ...]:
        return tuple(drawn(*shape, seed=i, dtype=torch.float32) for i in range(3))

    def test_one_sequence(self, device: str) -> None:
        q, k, v = (x.to(device) for x in self.given(7, 2, 16))
        bounds = torch.tensor([0, 7], dtype=torch.int32)
        output = self.attention().apply(
            q=q, k=k, v=v, cu_seqlens_q=bounds, cu_seqlens_kv=bounds, max_seqlen_q=7,
            max_seqlen_kv=7, block_idx=3, scheduler=None, grid_sizes=(1, 1, 7),
        )  # fmt: skip
        heads_first = (x.cpu().transpose(0, 1) for x in (q, k, v))
        expected = torch.nn.functional.scaled_dot_product_attention(*heads_first)
        assert output.shape == (7, 32)
        torch.testing.assert_close(output.cpu(), expected.transpose(0, 1).reshape(7, 32))

    def test_a_batch(self) -> None:
        q, k, v = self.given(3, 5, 2, 16)
        output = self.attention().apply(q, k, v, max_seqlen_q=5, max_seqlen_kv=5)
        assert output.shape == (15, 32)
        alone = self.attention().apply(q[1], k[1], v[1])
        torch.testing.assert_close(output[5:10], alone)

    def test_packed_sequences_do_not_see_each_other(self) -> None:
        q, k, v = self.given(9, 2, 16)
        bounds = torch.tensor([0, 4, 9], dtype=torch.int32)
        output = self.attention().apply(q, k, v, bounds, bounds, 5, 5)
        alone = self.attention().apply(q[4:], k[4:], v[4:])
        torch.testing.assert_close(output[4:], alone)
        with pytest.raises(ValueError, match="end at 9 queries and 9 keys, but there are 9 and 8"):
            self.attention().apply(q, k[:8], v[:8], bounds, bounds, 5, 5)

    def test_with_lse_for_ring(self, device: str) -> None:
        q, k, v = (x.to(device) for x in self.given(7, 2, 16))
        output, lse = self.attention().apply_with_lse(q, k, v, softmax_scale=0.3)
        assert output.shape == (7, 32) and lse.shape == (7, 2)
        scores = torch.einsum("qhd,khd->qhk", q.cpu(), k.cpu()) * 0.3
        torch.testing.assert_close(lse.cpu(), scores.logsumexp(-1), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(
        "options", [{"drop_rate": 0.1}, {"window_size": (8, 8)}, {"softcap": 30.0}]
    )
    def test_what_would_change_the_result_is_refused(self, options: dict[str, Any]) -> None:
        q, k, v = self.given(7, 2, 16)
        with pytest.raises(ValueError, match=next(iter(options))):
            self.attention().apply(q, k, v, **options)


class TestExperts:
    """The mixture of experts, and LightX2V's factory for it."""

    def create(self, **more: Any) -> Any:
        from lightx2v.common.ops.moe.fused_moe import create_local_fused_moe

        fc1 = [drawn(12, 8, seed=i, dtype=torch.float32) for i in range(3)]
        fc2 = [drawn(5, 6, seed=9 + i, dtype=torch.float32) for i in range(3)]
        return create_local_fused_moe("flagos_moe", fc1, fc2, "swiglu", **more)

    def test_the_factory_makes_ours_and_nothing_else_new(self) -> None:
        from lightx2v.common.ops.moe.fused_moe import create_local_fused_moe

        assert type(self.create()).__name__ == "FlagosFusedMoE"
        with pytest.raises(ValueError, match="unsupported local fused MoE backend 'flagos_mo'"):
            create_local_fused_moe("flagos_mo", [], [], "swiglu")

    def test_apply(self) -> None:
        x, chosen = drawn(4, 8, dtype=torch.float32), torch.tensor([[0], [2], [0], [1]])
        scales, output = torch.full((4, 1), 0.5), torch.empty(4, 5)
        result = self.create().apply(x, chosen, scales, output)
        assert result is output and torch.isfinite(output).all()
        value, gate = (x[1] @ self.create().fc1_weight[2].t()).chunk(2)
        hidden = value * torch.nn.functional.silu(gate)
        torch.testing.assert_close(output[1], 0.5 * (hidden @ self.create().fc2_weight[2].t()))
        assert operators.moe.calls == {"torch.moe": 1}

    def test_no_tokens(self) -> None:
        empty = torch.empty(0, 1)
        assert self.create().apply(torch.empty(0, 8), empty.long(), empty).shape == (0, 5)

    def test_a_gate_that_came_apart(self) -> None:
        from lightx2v.common.ops.moe.fused_moe import create_local_fused_moe

        packed = self.create().fc1_weight
        value, gate = packed.chunk(2, dim=1)
        fc2 = self.create().fc2_weight
        made = create_local_fused_moe("flagos_moe", value, fc2, "swiglu", fc1_gate_weight=gate)
        assert torch.equal(made.fc1_weight, packed)

    def test_wrong_shapes_are_named(self) -> None:
        x = torch.zeros(4, 8)
        with pytest.raises(ValueError, match=r"need experts and scales of \(4, k\)"):
            self.create().apply(x, torch.zeros(3, 1).long(), torch.zeros(3, 1))
        with pytest.raises(TypeError, match="must be integers"):
            self.create().apply(x, torch.zeros(4, 1), torch.zeros(4, 1))

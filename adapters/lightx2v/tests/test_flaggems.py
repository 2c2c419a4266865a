"""FlagGems' kernels as they are called: signatures, layouts, and what is declined.

FlagGems needs a GPU. Functions with the signatures of FlagGems, computing by torch what its own compute,
stand in for it; where FLAGGEMS_SOURCE_DIR names its sources, the signatures are compared with those.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flagos import Operator, UnsupportedError
from lightx2v_fl import operators
from lightx2v_fl.operators import implementations


def rms_norm(x, normalized_shape, weight, eps=1e-5):
    return F.rms_norm(x, normalized_shape, weight, eps)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return F.layer_norm(input, normalized_shape, weight, bias, eps), None, None


def mm(a, b):
    return a @ b


def addmm(bias, mat1, mat2, *, beta=1, alpha=1):
    return beta * bias + alpha * (mat1 @ mat2)


def apply_rotary_pos_emb(
    q, k, cos, sin, position_ids=None, rotary_interleaved=False, inplace=False
):
    """q and k [batch, tokens, heads, dim] when there are no positions; cos and sin [tokens, dim / 2]."""
    assert q.ndim == 4 and q.is_contiguous() and cos.is_contiguous() and not inplace
    results = []
    for x in (q, k):
        every = (slice(0, None, 2), slice(1, None, 2))
        half = (slice(0, x.shape[-1] // 2), slice(x.shape[-1] // 2, None))
        a, b = every if rotary_interleaved else half
        turned = torch.empty_like(x)
        c, s = cos.unsqueeze(1), sin.unsqueeze(1)
        turned[..., a] = (x[..., a] * c - x[..., b] * s).to(x.dtype)
        turned[..., b] = (x[..., a] * s + x[..., b] * c).to(x.dtype)
        results.append(turned)
    return tuple(results)


def flash_attention_forward(
    query, key, value, cumulative_sequence_length_q, cumulative_sequence_length_k, max_q, max_k,
    dropout_p, is_causal, return_debug_mask, *, scale=None, softcap=0.0, window_size_left=None,
    window_size_right=None, seqused_k=None, alibi_slopes=None, disable_splitkv=False,
):  # fmt: skip
    """[batch, tokens, heads, dim], with lse [batch, heads, tokens]."""
    assert cumulative_sequence_length_q is None and query.dtype in (torch.float16, torch.bfloat16)
    q, k, v = (x.transpose(1, 2).float() for x in (query, key, value))
    scores = (q @ k.transpose(-1, -2)) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    output = (scores.softmax(-1) @ v).transpose(1, 2).to(query.dtype)
    return output, scores.logsumexp(-1), None, None, None


def scaled_mm(
    self, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False
):
    assert scale_a.shape == (self.shape[0], 1) and scale_b.shape == (1, mat2.shape[1])
    product = (self.float() @ mat2.float()) * scale_a * scale_b
    return (product if bias is None else product + bias.float()).to(out_dtype)


def outplace_fused_experts(
    hidden_states, w1, w2, topk_weights, topk_ids, activation="silu",
    apply_router_weight_on_input=False, use_fp8_w8a8=False, use_int8_w8a8=False,
    use_int8_w8a16=False, use_int4_w4a16=False, per_channel_quant=False, global_num_experts=-1,
    w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, block_shape=None, w1_bias=None,
    w2_bias=None,
):  # fmt: skip
    """The gate is the first half of what w1 gives."""
    assert activation == "silu"
    output = torch.zeros_like(hidden_states)
    for token in range(hidden_states.shape[0]):
        for slot, expert in enumerate(topk_ids[token].tolist()):
            gate, value = (hidden_states[token] @ w1[expert].t()).chunk(2)
            output[token] += topk_weights[token, slot] * ((F.silu(gate) * value) @ w2[expert].t())
    return output


#: The functions by FlagGems' modules. The package's `ops` binds one of these names to a function.
MODULES: dict[str, tuple[Callable[..., Any], ...]] = {
    "ops.rms_norm": (rms_norm,),
    "ops.layernorm": (layer_norm,),
    "ops.mm": (mm,),
    "ops.addmm": (addmm,),
    "ops.attention": (flash_attention_forward,),
    "ops.scaled_mm": (scaled_mm,),
    "fused.rotary_embedding": (apply_rotary_pos_emb,),
    "fused.fused_moe": (outplace_fused_experts,),
}


@pytest.fixture
def flag_gems(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in as the package `flag_gems`."""
    for name in ("", ".ops", ".fused"):
        monkeypatch.setitem(sys.modules, f"flag_gems{name}", types.ModuleType(f"flag_gems{name}"))
    for name, functions in MODULES.items():
        module = types.ModuleType(f"flag_gems.{name}")
        for function in functions:
            setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, f"flag_gems.{name}", module)
    sys.modules["flag_gems.ops"].rms_norm = rms_norm  # type: ignore[attr-defined]
    implementations.flaggems_function.cache_clear()
    yield
    implementations.flaggems_function.cache_clear()


def case(name: str) -> tuple[Any, ...]:
    """Arguments for the operator `name`, in bfloat16."""

    def drawn(*shape: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, generator=generator).to(torch.bfloat16)

    q, k, v = (drawn(1, 5, 2, 16, seed=i) for i in range(3))
    freqs = torch.polar(torch.ones(5, 1, 8), drawn(5, 1, 8, seed=3).float())
    eight, scale = operators.quantized.quantize_int8(drawn(12, 16, seed=1))
    float8, of_float8 = operators.quantized.quantize_fp8(drawn(12, 16, seed=1))
    chosen = torch.tensor([[0, 1], [2, 0], [1, 2]])
    return {
        "rms_norm": (drawn(3, 16), drawn(16, seed=1), 1e-6),
        "layer_norm": (drawn(3, 16), drawn(16, seed=1), None, 1e-6),
        "linear": (drawn(3, 16), drawn(12, 16, seed=1).t(), drawn(12, seed=2)),
        "rope": ((q[0], k[0]), freqs, True, torch.float32),
        "attention": (q, k, v, None, 0.4, True),
        "attention_with_lse": (q, k, v, None),
        "int8_linear": (drawn(3, 16), eight.t(), scale, drawn(12, seed=2)),
        "fp8_linear": (drawn(3, 16), float8.t(), of_float8, None),
        "moe": (
            drawn(3, 8), chosen, torch.full((3, 2), 0.5), drawn(3, 12, 8, seed=1),
            drawn(3, 8, 6, seed=2), None, None, "swiglu",
        ),
    }[name]  # fmt: skip


def flaggems_of(name: str) -> Callable[..., Any]:
    """The operator's implementation by FlagGems."""
    operator: Operator = getattr(operators, name)
    return operator.implementation(f"flaggems.{name}")


@pytest.mark.usefixtures("flag_gems")
@pytest.mark.parametrize("name", operators.__all__)
def test_the_kernels_are_given_what_they_take(name: str) -> None:
    arguments = case(name)
    got, expected = flaggems_of(name)(*arguments), reference(name, arguments)
    for mine, theirs in zip(parts(got), parts(expected), strict=True):
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine.float(), theirs.float(), rtol=3e-2, atol=3e-2)


def reference(name: str, arguments: tuple[Any, ...]) -> Any:
    import flagos

    with flagos.route({f"lightx2v::{name}": "reference"}):
        return getattr(operators, name)(*arguments)


def parts(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.usefixtures("flag_gems")
def test_one_tensor_is_rotated_too() -> None:
    (q, _k), *rest = case("rope")
    (got,) = flaggems_of("rope")((q,), *rest)
    torch.testing.assert_close(got, reference("rope", ((q,), *rest))[0], rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("flag_gems")
@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        ("rms_norm", {1: None}, "needs a weight"),
        ("attention", {3: torch.ones(5, 5, dtype=torch.bool)}, "takes no mask"),
        ("attention", {0: torch.zeros(1, 5, 2, 16)}, "not torch.float32"),
        ("rope", {3: torch.float64}, "rotates in float32"),
        ("rope", {1: torch.ones(1, 1, 8, dtype=torch.complex64)}, "one angle per token"),
        ("moe", {7: "gelu"}, "not gelu"),
        ("moe", {5: torch.zeros(3, 12)}, "without biases"),
    ],
)
def test_what_they_do_not_take_is_declined(name: str, changed: dict[int, Any], reason: str) -> None:
    arguments = [changed.get(i, argument) for i, argument in enumerate(case(name))]
    with pytest.raises(UnsupportedError, match=reason):
        flaggems_of(name)(*arguments)


def test_a_flaggems_that_lacks_a_function_is_declined(flag_gems: None) -> None:
    del sys.modules["flag_gems.ops.mm"].mm  # type: ignore[attr-defined]
    x, w, _ = case("linear")
    with pytest.raises(UnsupportedError, match=r"this FlagGems has no flag_gems\.ops\.mm\.mm"):
        flaggems_of("linear")(x, w, None)


def test_without_flaggems_its_kernels_are_never_chosen() -> None:
    missing = implementations.flaggems_missing
    assert missing(None) is not None and missing("nvidia") is not None
    for name in operators.__all__:
        assert not getattr(operators, name).winner.startswith("flaggems.")


def test_flaggems_needs_a_route_unless_all_of_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FLAGOS_FLAGGEMS", raising=False)
    assert "FLAGOS_FLAGGEMS=all" in (implementations.flaggems_on_request() or "")
    monkeypatch.setenv("FLAGOS_FLAGGEMS", "all")
    assert implementations.flaggems_on_request() is None


@pytest.mark.parametrize("module", MODULES)
def test_the_signatures_are_flaggems_own(module: str) -> None:
    sources = os.environ.get("FLAGGEMS_SOURCE_DIR")
    if not sources:
        pytest.skip("FLAGGEMS_SOURCE_DIR names no FlagGems")
    tree = ast.parse((Path(sources) / f"{module.replace('.', '/')}.py").read_text())
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for function in MODULES[module]:
        given = defined[function.__name__].args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        assert [a.arg for a in named] == list(inspect.signature(function).parameters)


def test_the_module_named_quantized_is_reachable() -> None:
    assert (
        torch.finfo(torch.float8_e4m3fn).max
        == import_module("lightx2v_fl.operators.quantized").FP8_MAX
    )

"""vLLM itself with weights of integers, latent attention and several engines, on the host, beside transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.torch.tests.launch import free_port
from vllm_flagos import releases

pytestmark = pytest.mark.vllm

Report = Callable[..., dict[str, Any]]
APART = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "FLAGOS_HOST_DEVICES": "2"}
TWO = {"tensor_parallel_size": 2}
COMPILED = {"enforce_eager": False}
MM, EXPERTS = "vllm::group_quantized_mm", "vllm::quantized_experts"


@pytest.mark.parametrize(
    ("kind", "options", "variables"),
    [
        ("awq", {}, {}),
        ("awq", TWO, APART),
        ("gptq", {}, {}),
        ("gptq8", {}, {}),
        ("gptq-order", {}, {}),
        ("gptq-order", TWO, APART),
        ("w4a16", {}, {}),
        ("w4a16", COMPILED, {}),
        ("w4a16-zeros", {}, {}),
        ("w4a16-channel", {}, {}),
        ("w8a16", {}, {}),
        ("experts-awq", {}, {}),
        ("experts-awq", COMPILED, {}),
        ("experts-gptq", {}, {}),
        ("experts-w4a16", {}, {}),
        ("experts-w4a16", TWO, APART),
        ("experts-w8a16", {}, {}),
    ],
)
def test_weights_of_integers(
    report: Report,
    release: releases.Release,
    tmp_path: Path,
    kind: str,
    options: dict[str, Any],
    variables: dict[str, str],
) -> None:
    if kind == "gptq-order" and not release.rows_in_any_order:
        with pytest.raises(pytest.fail.Exception, match=r"desc_act=True.* is no longer supported"):
            report("quantized.py", kind, tmp_path, options, **variables)
        return
    found = report("quantized.py", kind, tmp_path, options, **variables)
    assert found["tokens"] == found["expected"]
    assert {MM, EXPERTS} & found["calls"].keys() == ({MM, EXPERTS} if "experts" in kind else {MM})


@pytest.mark.parametrize(
    ("kind", "options", "most"),
    [
        ("w8a8", {}, 0.05),
        ("w8a8", COMPILED, 0.05),
        ("w8a8-zeros", {}, 0.2),
        ("experts-w8a8", {}, 0.05),
    ],
)
def test_activations_of_integers(
    report: Report, tmp_path: Path, kind: str, options: dict[str, Any], most: float
) -> None:
    """Where a number lies between two, a difference in the last bit of a sum rounds it otherwise."""
    found = report("quantized.py", kind, tmp_path, options)
    assert found["behind"] <= most
    equal = sum(a == b for a, b in zip(found["tokens"], found["expected"], strict=True))
    assert equal >= 3
    product = "cutlass_scaled_mm" + ("_azp" if "zeros" in kind else "")
    assert {f"_C::{product}", "_C::dynamic_scaled_int8_quant"} <= found["calls"].keys()


@pytest.mark.parametrize(
    ("heads", "options", "variables"),
    [
        ("odd", {}, {}),
        ("odd", TWO, APART),
        ("odd", COMPILED, {}),
        ("odd", {"num_gpu_blocks_override": 17}, {}),
        ("deepseek", {}, {}),
    ],
    ids=["alone", "two ranks", "compiled", "preempted", "DeepSeek's sizes"],
)
def test_latent_attention(
    report: Report, tmp_path: Path, heads: str, options: dict[str, Any], variables: dict[str, str]
) -> None:
    """DeepSeek-V3: prompts in chunks over a context, and the same prompts again from the prefix cache."""
    found = report("latent.py", heads, tmp_path, options, **variables)
    assert found["tokens"] == found["expected"]
    assert found["again"] == found["expected"]
    assert found["calls"].keys() >= {
        "vllm::latent_attention",
        "vllm::expanded_attention",
        "vllm::expanded_attention_to_merge",
        "vllm::merge_attention",
        "_C_cache_ops::concat_and_cache_mla",
        "_C_cache_ops::gather_and_maybe_dequant_cache",
    }


@pytest.mark.parametrize("options", [{}, TWO], ids=["one rank", "two ranks"])
def test_adapters_of_experts(report: Report, tmp_path: Path, options: dict[str, Any]) -> None:
    found = report("adapted_experts.py", tmp_path, options, **(APART if options else {}))
    assert found["alone"] == found["expected"]
    assert found["mixed"] == found["expected"]
    assert found["expected"][0] != found["expected"][1] != found["expected"][2]
    assert "vllm::experts_with_adapters" in found["calls"]


@pytest.mark.parametrize("options", [{}, TWO], ids=["one rank", "two ranks"])
def test_prompts_of_another_engine(
    report: Report, models: Path, expected: dict[str, Any], options: dict[str, Any]
) -> None:
    found = report(
        "transfer.py", models / "dense", options, free_port(), **(APART if options else {})
    )
    order = (0, 1, 2, 4, 3)  # of prompts, the last of which the other engine has not computed
    assert found["tokens"] == [expected["dense"][at][:12] for at in order]
    assert found["given"] == [0, 0, 16, 80, 0]
    assert [tokens[:1] for tokens in found["tokens"][:4]] == found["first"]


def test_latent_prompts_of_another_engine(report: Report, tmp_path: Path) -> None:
    alone = report("latent.py", "odd", tmp_path, {})
    found = report("transfer.py", tmp_path / "deepseek", {}, free_port())
    assert found["tokens"] == [alone["expected"][at][:12] for at in (0, 1, 2, 4, 3)]
    assert found["given"] == [0, 0, 16, 80, 0]


def test_two_nodes(report: Report, models: Path, expected: dict[str, Any]) -> None:
    variables = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "FLAGOS_HOST_DEVICES": "1"}
    found = report("nodes.py", models / "dense", {}, free_port(), **variables)
    assert found["tokens"] == expected["dense"]


def test_vllms_triton_kernels_of_these_forms(report: Report, release: releases.Release) -> None:
    found = report("forms.py", TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    assert len(found["differences"]) == 13 + release.masks_empty_contexts
    for name, difference in found["differences"].items():
        assert difference < 2e-3, name

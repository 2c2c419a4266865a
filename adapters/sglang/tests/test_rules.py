"""What is refused, and what a refusal says."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from sglang_flagos import operators, releases, rules
from sglang_flagos.operators import attention as operators_of_attention

pytestmark = pytest.mark.host

DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(rules.SWITCHES),
    **{name: served[0] for name, (served, _, _) in rules.VALUES.items()},
    **dict.fromkeys(
        (
            "attention_backend",
            "prefill_attention_backend",
            "decode_attention_backend",
            "enable_lora",
            "lora_paths",
            "enable_lora_overlap_loading",
            "speculative_algorithm",
            "quantization",
            "cuda_graph_backend_decode",
            "cuda_graph_backend_prefill",
            "enable_memory_saver",
            "disable_hybrid_swa_memory",
            "chunked_prefill_size",
        )
    ),
    "device": "flagos",
    "cuda_graph_config": SimpleNamespace(
        decode=SimpleNamespace(backend="full"), prefill=SimpleNamespace(backend="disabled")
    ),
    "model_path": "dummy",
    "load_format": "auto",
    "lora_backend": "csgmv",
    "tokenizer_worker_num": 1,
    "nnodes": 1,
    "base_gpu_id": 0,
    "gpu_id_step": 1,
    **dict.fromkeys(("tp_size", "pp_size", "dp_size"), 1),
}


@pytest.fixture(autouse=True, params=releases.RELEASES, ids=lambda release: release.number)
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> releases.Release:
    """Each of the releases, as if it were installed."""
    monkeypatch.setattr(releases, "installed", lambda: request.param)
    return request.param


def args(**given: Any) -> Any:
    return SimpleNamespace(**{**DEFAULTS, **given})


def test_the_defaults_are_served_by_ours() -> None:
    given = args()
    rules.prepare(given)
    assert (given.device, given.lora_backend, given.sampling_backend) == (
        *("flagos", "torch_native", "pytorch"),
    )
    assert given.disable_custom_all_reduce


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "device": ({"device": "cuda"}, "--device cuda: SGLANG_PLATFORM=flagos serves flagos; write"),
    "ranks": (
        {"tp_size": 2, "dp_size": 2},
        "--tp-size --dp-size: 4 ranks need 4 flagos devices, and there are 2; write at most 2 in",
    ),
    "numbers": ({"base_gpu_id": 7}, "--base-gpu-id 7: device 7 is not there, of 2 flagos devices"),
    "machines": ({"nnodes": 2}, "--nnodes 2: "),
    "attention": ({"decode_attention_backend": "fa3"}, "--decode-attention-backend fa3: on flagos"),
    "sampling": ({"sampling_backend": "flashinfer"}, "--sampling-backend flashinfer: its kernels"),
    "grammars": ({"grammar_backend": "outlines"}, "--grammar-backend outlines: it has not been"),
    "cache": ({"kv_cache_dtype": "fp4_e2m1"}, "--kv-cache-dtype fp4_e2m1: flagos has no kernels"),
    "adapters": ({"lora_backend": "triton"}, "--lora-backend triton: its kernels are Triton's: "),
    "speculation": ({"speculative_algorithm": "EAGLE3"}, "--speculative-algorithm EAGLE3: its ke"),
    "n-grams": ({"speculative_algorithm": "ngram"}, "--speculative-algorithm ngram: SGLang itself"),
    "quantization": ({"quantization": "awq"}, "--quantization awq: flagos has no kernels for it"),
    "loading": ({"load_format": "gguf"}, "--load-format gguf: it has not been tried on flagos"),
    "graphs": (
        {"cuda_graph_backend_decode": "full"},
        "--cuda-graph-backend-decode full: vendor host captures no graphs; write disabled",
    ),
    "memory": (
        {"enable_memory_saver": True, "tokenizer_worker_num": 3},
        "--enable-memory-saver: it keeps what is released in the one process of the tokenizer",
    ),
    "DP attention": ({"attn_dp_size": 2}, "--attn-dp-size 2: DP attention (--enable-dp-attention"),
    "a switch": ({"enable_dp_attention": True}, "--enable-dp-attention: it has not been tried"),
}


@pytest.mark.parametrize(("given", "words"), OPTIONS.values(), ids=OPTIONS)
def test_an_option_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    found = [str(problem) for problem in rules.problems(args(**given))]
    assert len(found) == 1 and found[0].startswith(words)
    with pytest.raises(ValueError, match="this configuration does not work on flagos:\n  --"):
        rules.prepare(args(**given))


def captured(decode: str, prefill: str = "disabled", **given: Any) -> Any:
    phases = {"decode": decode, "prefill": prefill}
    made = {name: SimpleNamespace(backend=backend) for name, backend in phases.items()}
    return args(cuda_graph_config=SimpleNamespace(**made), **given)


GRAPHS: dict[str, tuple[Any, str | None]] = {
    "of decoding": (captured("full"), None),
    "none": (captured("disabled", enable_memory_saver=True), None),
    "in parts": (captured("breakable"), "--cuda-graph-backend-decode breakable: decoding on"),
    "of prompts": (captured("full", "breakable"), "--cuda-graph-backend-prefill breakable: graphs"),
    "of memory that goes": (
        captured("full", enable_memory_saver=True),
        "--enable-memory-saver: graphs keep the addresses",
    ),
}


@pytest.mark.parametrize(("given", "words"), [*GRAPHS.values()], ids=GRAPHS)
def test_graphs_on_cuda(monkeypatch: pytest.MonkeyPatch, given: Any, words: str | None) -> None:
    monkeypatch.setattr(rules, "device_type", lambda: "cuda")
    found = [str(problem) for problem in rules.problems(given)]
    assert len(found) == (words is not None) and all(one.startswith(words or "") for one in found)


# Triton, FlashAttention 3 and a route of experts → the operators of attention, and how decoding is captured.
ON_CUDA: dict[str, tuple[tuple[bool, bool, bool], tuple[str, ...], str]] = {
    "triton": ((True, False, False), ("decode_attention", "extend_attention"), "full"),
    "the wheel": ((True, True, False), ("paged_attention",), "full"),
    "references": ((False, False, False), ("paged_attention",), "disabled"),
    "a route": ((True, True, True), ("paged_attention",), "disabled"),
}


@pytest.mark.parametrize(("there", "attention", "backend"), ON_CUDA.values(), ids=ON_CUDA)
def test_what_reads_on_the_host_decodes_without_graphs(
    monkeypatch: pytest.MonkeyPatch, there: tuple[bool, ...], attention: Any, backend: str
) -> None:
    triton, wheel, routed = there
    text = SimpleNamespace(num_experts=8, routed_scaling_factor=1.0)
    model = SimpleNamespace(hf_text_config=text, hf_config=SimpleNamespace(architectures=["M"]))
    vars(model).update(dtype=torch.bfloat16, head_dim=64, v_head_dim=64)
    winners = {
        "paged_attention": "flash_attention_3" if wheel else "reference",
        "decode_attention": "triton" if triton else "reference",
        "fused_experts": "triton" if triton and not routed else "reference",
    }
    for name, winner in winners.items():
        operator = SimpleNamespace(winner=f"{winner}.{name}")
        monkeypatch.setattr(operators, name, operator)
        if name == "paged_attention":
            monkeypatch.setattr(operators_of_attention, name, operator)
    monkeypatch.setattr(rules, "_config", lambda args: model)
    monkeypatch.setattr(rules, "problems", lambda args: iter(()))
    monkeypatch.setattr(rules, "triton_missing", lambda: None if triton else "no driver")
    monkeypatch.setattr(rules, "device_type", lambda: "cuda")
    given = captured("full")
    assert rules.attention(given) == attention
    rules.prepare(given)
    assert given.cuda_graph_config.decode.backend == backend
    if wheel:  # which takes neither float32 nor another type of the cache
        model.dtype = torch.float32
        assert rules.attention(given) == ("decode_attention", "extend_attention")
        given.kv_cache_dtype = "bfloat16"
        assert rules.attention(given) == ("decode_attention", "extend_attention")
        model.dtype = torch.bfloat16
        assert rules.attention(given) == attention


def test_the_fence_cannot_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_ENABLE_WAR_BARRIER", "false")
    (found,) = rules.problems(args())
    assert str(found).startswith("SGLANG_ENABLE_WAR_BARRIER=0: without the fence")


MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "latent": ({"attention_arch": 1}, {}, "model: M has multi-head latent attention"),
    "images": ({"is_multimodal": True}, {}, "model: M has images or sounds"),
    "cross": ({"is_encoder_decoder": True}, {}, "model: M has cross attention"),
    "windows": ({"is_hybrid_swa": True}, {}, "model: M has layers with a sliding window"),
    "a factor": ({"factor": 2.5}, {}, "model: M has a factor of its experts"),
    "sinks": ({"has_attention_sinks": True}, {}, "model: M has attention with sinks"),
    "gates": ({"name": "GptOssForCausalLM"}, {}, "model: GptOssForCausalLM has attention with"),
    "state spaces": ({"mamba": True}, {}, "model: M has layers of linear attention"),
    "8 bits": ({"quantization": "awq"}, {}, "model of quantization awq: flagos has no kernels"),
    "experts of 8 bits": (
        {"experts": 8},
        {"quantization": "fp8"},
        "--quantization fp8: flagos has kernels of experts without quantization alone",
    ),
    "an encoder in parts": (
        {"name": "BertForSequenceClassification"},
        {"chunked_prefill_size": 64},
        "--chunked-prefill-size 64: every token of this model sees every other",
    ),
    "adapters of experts": ({"experts": 8}, {"enable_lora": True}, "--enable-lora: SGLang's"),
}


@pytest.mark.parametrize(("model", "given", "words"), [*MODELS.values()], ids=MODELS)
def test_a_model_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], given: dict[str, Any], words: str
) -> None:
    hybrid, config = ModuleType("hybrid_arch"), ModuleType("model_config")
    hybrid.mambaish_config = lambda model: model.mamba  # type: ignore[attr-defined]
    config.AttentionArch = SimpleNamespace(MLA=1, MHA=2)  # type: ignore[attr-defined]
    making = ModuleType("model_override_base")
    making.model_config_of = lambda args: args.get_model_config()  # type: ignore[attr-defined]
    modules = {
        **dict.fromkeys(("sglang", "sglang.srt", "sglang.srt.configs", "sglang.srt.arg_groups")),
        "sglang.srt.configs.hybrid_arch": hybrid,
        "sglang.srt.configs.model_config": config,
        "sglang.srt.arg_groups.model_override_base": making,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module or ModuleType(name))

    def made(name: str = "M", experts: int = 0, factor: float = 1.0, **fields: Any) -> Any:
        text = SimpleNamespace(num_experts=experts, routed_scaling_factor=factor)
        known = {
            "dtype": None,
            "attention_arch": 2,
            "quantization": None,
            "mamba": None,
            **dict.fromkeys(
                ("is_multimodal", "is_encoder_decoder", "is_hybrid_swa", "has_attention_sinks"),
                False,
            ),
        }
        hf = SimpleNamespace(architectures=[name])
        return SimpleNamespace(**{**known, **fields}, hf_config=hf, hf_text_config=text)

    def found(model: Any) -> list[str]:
        given_args = args(model_path="x", **given, get_model_config=lambda: model)
        return [str(problem) for problem in rules.problems(given_args)]

    (problem,) = found(made(**model))
    assert problem.startswith(words)
    assert found(made()) == []
    assert found(made("Glm4MoeForCausalLM", 8, 2.5)) == (
        [] if not given else found(made(experts=8))
    )

"""What flagos refuses of a configuration, and what it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_flagos import releases, rules

pytestmark = pytest.mark.host


def config(**changes: Any) -> Any:
    """A configuration that works, with changes as ``part__field``."""
    parts: dict[str, dict[str, Any]] = {
        "parallel_config": {
            "distributed_executor_backend": None,
            "nnodes": 1,
            "local_world_size": 1,
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 1,
            "data_parallel_size_local": 1,
            "data_parallel_rank_local": None,
            "data_parallel_backend": "mp",
            "enable_expert_parallel": False,
            "data_parallel_size": 1,
            "enable_dbo": False,
        },
        "model_config": {
            "quantization": None,
            "is_hybrid": False,
            "use_mla": False,
            "enable_sleep_mode": False,
            "architectures": ["Some"],
            "multimodal_config": None,
        },
        "cache_config": {
            "cache_dtype": "auto",
            "kv_offloading_size": None,
            "kv_cache_memory_bytes": None,
            "gpu_memory_utilization": 0.01,
        },
        "attention_config": {"backend": None},
        "kernel_config": {"moe_backend": "auto"},
    }
    whole: dict[str, Any] = {"speculative_config": None, "kv_transfer_config": None}
    for name, value in changes.items():
        part, _, field = name.partition("__")
        if field:
            parts[part][field] = value
        else:
            whole[part] = value
    return SimpleNamespace(**{n: SimpleNamespace(**p) for n, p in parts.items()}, **whole)


def named(name: str) -> Any:
    return SimpleNamespace(name=name)


def scheme(bits: int, kind: str, activations: Any = ..., **more: Any) -> Any:
    """The description of a model that compressed-tensors quantized."""
    weights = {"num_bits": bits, "type": kind, **more}
    given = {"num_bits": bits, "type": kind} if activations is ... else activations
    groups = {"group_0": {"weights": weights, "input_activations": given}}
    return SimpleNamespace(quantization_config={"config_groups": groups})


def transfer(role: str) -> Any:
    return SimpleNamespace(kv_connector="FlagosConnector", kv_role=role)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "ranks": (
        {"parallel_config__local_world_size": 9, "parallel_config__tensor_parallel_size": 9},
        "--tensor-parallel-size: 9 ranks need 9 flagos devices, and there are 2; write at most 2",
    ),
    "replicas": (
        {
            "parallel_config__local_world_size": 2,
            "parallel_config__tensor_parallel_size": 2,
            "parallel_config__data_parallel_size_local": 2,
        },
        "--tensor-parallel-size --data-parallel-size: 4 ranks need 4 flagos devices, and there are 2",
    ),
    "memory of replicas": (
        {
            "parallel_config__data_parallel_size_local": 2,
            "cache_config__gpu_memory_utilization": 1.0,
        },
        "--gpu-memory-utilization 1.0: it asks for ",
    ),
    "devices": (
        {"parallel_config__assigned_physical_gpu_ids": [0, 5]},
        "--device-ids 0,5: 5 of them are not there, of 2 flagos devices from 0 on",
    ),
    "a device below 0": (
        {"parallel_config__assigned_physical_gpu_ids": [-1]},
        "--device-ids -1: -1 of them are not there",
    ),
    "fewer devices than ranks": (
        {
            "parallel_config__assigned_physical_gpu_ids": [0],
            "parallel_config__local_world_size": 2,
            "parallel_config__tensor_parallel_size": 2,
        },
        "--device-ids 0: 2 ranks need 2 devices",
    ),
    "chunks": (
        {
            "model_config__architectures": ["Rnj1ForCausalLM"],
            "model_config__hf_text_config": SimpleNamespace(layer_types=["chunked_attention"]),
        },
        "model: vLLM takes its own backend alone for attention to the chunk before",
    ),
    "ray": ({"parallel_config__distributed_executor_backend": "ray"}, "Ray does not know flagos"),
    "microbatches": ({"parallel_config__enable_dbo": True}, "--enable-dbo: overlapped"),
    "adapters of quantized experts": (
        {
            "lora_config": named("lora"),
            "model_config__is_moe": True,
            "model_config__quantization": "auto_awq",
        },
        "--enable-lora with --quantization auto_awq: adapters of experts are for weights without",
    ),
    "parts of adapters of experts": (
        {
            "lora_config": SimpleNamespace(fully_sharded_loras=True),
            "model_config__is_moe": True,
        },
        "--enable-lora with --fully-sharded-loras: each rank of flagos has whole adapters of experts",
    ),
    "adapters of experts by rank": (
        {
            "lora_config": named("lora"),
            "model_config__is_moe": True,
            "parallel_config__enable_expert_parallel": True,
        },
        "--enable-lora with --enable-expert-parallel: adapters of experts have not been tried",
    ),
    "adapters of experts that replicas share": (
        {
            "lora_config": named("lora"),
            "model_config__is_moe": True,
            "parallel_config__data_parallel_size": 2,
        },
        "--enable-lora with --data-parallel-size: replicas exchange the tokens of experts, but not",
    ),
    "quantized experts that replicas share": (
        {
            "model_config__is_moe": True,
            "model_config__quantization": "auto_awq",
            "parallel_config__data_parallel_size": 2,
        },
        "--data-parallel-size with --quantization auto_awq: experts that replicas share have been",
    ),
    "kernels between replicas": (
        {
            "model_config__is_moe": True,
            "parallel_config__data_parallel_size": 2,
            "parallel_config__all2all_backend": "deepep_low_latency",
        },
        "--all2all-backend deepep_low_latency: its kernels are for CUDA",
    ),
    "quantization": (
        {"model_config__quantization": "gptq_marlin"},
        "--quantization gptq_marlin: flagos has no kernels for it; write one of fp8,",
    ),
    "quantized experts": (
        {"model_config__quantization": "fp8", "model_config__is_moe": True},
        "--quantization fp8: flagos has kernels of experts without quantization, and with weights of integers",
    ),
    "experts whose groups lie anywhere": (
        {
            "model_config__quantization": "auto_gptq",
            "model_config__is_moe": True,
            "model_config__hf_config": SimpleNamespace(quantization_config={"desc_act": True}),
        },
        "--quantization auto_gptq: experts take groups of rows as they follow each other, and the model has desc_act",
    ),
    "experts with zeros": (
        {
            "model_config__quantization": "compressed-tensors",
            "model_config__is_moe": True,
            "model_config__hf_config": scheme(4, "int", None, strategy="group", symmetric=False),
        },
        "experts have weights of integers, symmetric and in groups, or W8A8 with a scale for each token",
    ),
    "whole numbers of blocks": (
        {
            "model_config__quantization": "compressed-tensors",
            "model_config__hf_config": scheme(8, "int", strategy="block"),
        },
        "group_0 of the model has weights of 8 bits of int and input_activations of 8 bits of int",
    ),
    "three bits": (
        {
            "model_config__quantization": "compressed-tensors",
            "model_config__hf_config": scheme(3, "int", None, strategy="group"),
        },
        "weights of 3 bits of int and input_activations of no bits of any type",
    ),
    "four bits": (
        {
            "model_config__quantization": "compressed-tensors",
            "model_config__hf_config": scheme(4, "float"),
        },
        "weights of 4 bits of float",
    ),
    "activations without quantization": (
        {
            "model_config__quantization": "compressed-tensors",
            "model_config__hf_config": scheme(8, "float", activations=None),
        },
        "group_0 of the model has weights of 8 bits of float and input_activations of no bits of any type",
    ),
    "weights of bitsandbytes": (
        {"load_config": SimpleNamespace(load_format="bitsandbytes")},
        "--load-format bitsandbytes",
    ),
    "parts of prompts": (
        {"parallel_config__prefill_context_parallel_size": 2},
        "--prefill-context-parallel-size: attention on flagos takes prompts whole",
    ),
    "blocks": (
        {"cache_config__block_size": 3},
        "--block-size 3: attention takes blocks of multiples of 16 tokens; write 16",
    ),
    "another 8 bits": (
        {"cache_config__cache_dtype": "fp8_e5m2"},
        "--kv-cache-dtype fp8_e5m2: vLLM's attention reads caches of 8 bits as fp8_e4m3; write fp8",
    ),
    "8 bits of sparse attention": (
        {"cache_config__cache_dtype": "fp8_ds_mla"},
        "--kv-cache-dtype fp8_ds_mla: it is the form of other chips, or of sparse latent attention",
    ),
    "8 bits of an encoder": (
        {"cache_config__cache_dtype": "fp8", "model_config__attn_type": "encoder_only"},
        "--kv-cache-dtype fp8: an encoder alone has no cache in 8 bits",
    ),
    "cache": ({"cache_config__cache_dtype": "nvfp4"}, "--kv-cache-dtype nvfp4"),
    "weights from a trainer's processes": (
        {"weight_transfer_config": SimpleNamespace(backend="nccl")},
        "--weight-transfer-config backend=nccl: vLLM's engines for it",
    ),
    "another sleep": (
        {
            "model_config__enable_sleep_mode": True,
            "model_config__sleep_mode_backend": "checkpoint",
        },
        "--sleep-mode-backend checkpoint: sleep mode on flagos is over the core's allocator",
    ),
    "a sleep of process groups": (
        {"model_config__enable_sleep_mode": True, "model_config__enable_nccl_comm_suspend": True},
        "--enable-nccl-comm-suspend: process groups of flagos keep their memory in a sleep",
    ),
    "cache of a later release": (
        {"cache_config__cache_dtype": "octave_k3v4"},
        "--kv-cache-dtype octave_k3v4: flagos has no kernels for it; write auto or fp8",
    ),
    "draft model": (
        {"speculative_config": SimpleNamespace(method="eagle")},
        "method=eagle: its kernels are Triton's:",
    ),
    "rejection": (
        {"speculative_config": SimpleNamespace(method="ngram", rejection_sample_method="fly")},
        "rejection_sample_method=fly: its kernels are Triton's:",
    ),
    "hybrid": ({"model_config__is_hybrid": True}, "Some has layers with kernels of Triton"),
    "latent attention of several ranks' contexts": (
        {"model_config__use_mla": True, "parallel_config__decode_context_parallel_size": 2},
        "--decode-context-parallel-size: latent attention over contexts of several ranks",
    ),
    "prompts of latent attention": (
        {
            "model_config__use_mla": True,
            "attention_config__mla_prefill_backend": named("FLASHINFER"),
        },
        "--attention-config mla_prefill_backend=FLASHINFER: on flagos prompts are the operator",
    ),
    "transfer": (
        {"kv_transfer_config": SimpleNamespace(kv_connector="NixlConnector")},
        "--kv-transfer-config: NixlConnector has not been tried",
    ),
    "both roles of a transfer": (
        {"kv_transfer_config": transfer("kv_both")},
        "--kv-transfer-config kv_role=kv_both: an engine of FlagosConnector computes prompts",
    ),
    "a transfer in stages": (
        {
            "kv_transfer_config": transfer("kv_producer"),
            "parallel_config__pipeline_parallel_size": 2,
        },
        "--kv-transfer-config with --pipeline-parallel-size or --data-parallel-size: FlagosConnector pairs",
    ),
    "offloading": ({"cache_config__kv_offloading_size": 4}, "--kv-offloading-size"),
    "attention": (
        {"attention_config__backend": named("FLASHINFER")},
        "--attention-backend FLASHINFER: on flagos attention is the operator vllm::paged_attention",
    ),
    "latent attention of a model without": (
        {"attention_config__backend": named("TRITON_MLA")},
        "--attention-backend TRITON_MLA: Some has no latent attention",
    ),
    "kernels of experts": (
        {"kernel_config__moe_backend": "marlin", "model_config__is_moe": True},
        "--moe-backend marlin: on flagos experts are the operator vllm::fused_experts",
    ),
    "kernels of products": (
        {"kernel_config__linear_backend": "cutlass", "model_config__quantization": "fp8"},
        "--linear-backend cutlass: flagos' products of 8 bits have no such name",
    ),
    "images": (
        {
            "model_config__multimodal_config": SimpleNamespace(
                mm_encoder_attn_backend=named("FLASH_ATTN")
            )
        },
        "--mm-encoder-attn-backend FLASH_ATTN",
    ),
}


def test_every_rule_is_tried() -> None:
    given = [config(**changes) for changes, _ in WRONG.values()]
    tried = {rule for rule in rules.RULES if any(rule(one) is not None for one in given)}
    assert tried | {rules._batch_invariance, rules._broken_graphs} == set(rules.RULES)


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_a_variable_that_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", value)
    options = [problem.option for problem in rules.problems(config())]
    assert options == (["VLLM_BATCH_INVARIANT"] if value == "1" else [])


@pytest.mark.parametrize(
    ("value", "mode", "states", "release", "refused"),
    [
        ("1", "PIECEWISE", True, "0.26.0", True),
        ("1", "PIECEWISE", True, "0.33.0", False),
        ("1", "PIECEWISE", False, "0.26.0", False),
        ("1", "NONE", True, "0.26.0", False),
        ("0", "PIECEWISE", True, "0.26.0", False),
    ],
)
def test_graphs_that_end_at_attention_as_they_are_captured(
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    mode: str,
    states: bool,
    release: str,
    refused: bool,
) -> None:
    monkeypatch.setattr(rules.releases, "installed", lambda: releases.of_vllm(release))
    monkeypatch.setenv("VLLM_USE_BREAKABLE_CUDAGRAPH", value)
    given = config(model_config__is_hybrid=states)
    given.compilation_config = SimpleNamespace(cudagraph_mode=named(mode))
    problem = rules._broken_graphs(given)
    assert (problem is not None) == refused
    if problem is not None:
        assert str(problem).startswith("VLLM_USE_BREAKABLE_CUDAGRAPH: such graphs end at attention")


def compilation(mode: Any = None, **passes: Any) -> Any:
    """A configuration before vLLM's defaults, where None was not asked for."""
    known = {"fuse_norm_quant": None, "enable_sp": None, "eliminate_noops": True}
    given = SimpleNamespace(**(known | passes))
    return SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_mode=mode, pass_config=given)
    )


def test_what_was_asked_of_the_compiler() -> None:
    for right in (compilation(), compilation(named("NONE"), fuse_norm_quant=False)):
        assert list(rules.problems(right, before_defaults=True)) == []
    wrong = compilation(named("FULL"), fuse_norm_quant=True)
    graphs, fusions = map(str, rules.problems(wrong, before_defaults=True))
    assert "cudagraph_mode=FULL: vendor host captures no graphs" in graphs
    assert "pass_config.fuse_norm_quant: vLLM's fusions" in fusions
    assert rules.fusions(wrong) == ["fuse_norm_quant", "enable_sp"]


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as refusal:
        rules.require(config(**changes))
    assert words in str(refusal.value)
    assert str(refusal.value).count("\n") == 1  # nothing else is wrong


RIGHT: dict[str, dict[str, Any]] = {
    "as it is": {},
    "experts by rank": {"parallel_config__enable_expert_parallel": True},
    "replicas": {"parallel_config__data_parallel_size": 2},
    "replicas of experts": {
        "model_config__is_moe": True,
        "parallel_config__enable_expert_parallel": True,
        "parallel_config__data_parallel_size": 2,
    },
    "kernels between replicas of a dense model": {
        "parallel_config__data_parallel_size": 2,
        "parallel_config__all2all_backend": "deepep_low_latency",
    },
    "two ranks": {"parallel_config__local_world_size": 2},
    "fp8": {"model_config__quantization": "fp8", "cache_config__cache_dtype": "fp8"},
    "latent attention": {"model_config__use_mla": True},
    "adapters of experts": {"lora_config": named("lora"), "model_config__is_moe": True},
    "a transfer": {"kv_transfer_config": transfer("kv_consumer")},
    "AWQ": {"model_config__quantization": "auto_awq"},
    "GPTQ of experts": {"model_config__quantization": "auto_gptq", "model_config__is_moe": True},
    "W4A16 of experts": {
        "model_config__quantization": "compressed-tensors",
        "model_config__is_moe": True,
        "model_config__hf_config": scheme(4, "int", None, strategy="group"),
    },
    "W4A16 with zeros": {
        "model_config__quantization": "compressed-tensors",
        "model_config__hf_config": scheme(4, "int", None, strategy="group", symmetric=False),
    },
    "W8A8": {
        "model_config__quantization": "compressed-tensors",
        "model_config__hf_config": scheme(
            8, "int", {"num_bits": 8, "type": "int", "strategy": "token"}, strategy="channel"
        ),
    },
    "sleep": {"model_config__enable_sleep_mode": True},
    "n-grams": {"speculative_config": SimpleNamespace(method="ngram")},
    "attention": {"attention_config__backend": named("TRITON_ATTN")},
    "no model": {"model_config": None},
    "kernels of experts that are not there": {"kernel_config__moe_backend": "marlin"},
    "a device for each rank": {
        "parallel_config__assigned_physical_gpu_ids": [1, 0],
        "parallel_config__local_world_size": 2,
    },
}


_REPLICAS = {"parallel_config__data_parallel_size": 8}
_PROGRAMS = {**_REPLICAS, "parallel_config__data_parallel_rank_local": 1}
RANKS: dict[str, tuple[dict[str, Any], int]] = {
    "one": ({}, 1),
    "of one replica": ({"parallel_config__local_world_size": 2}, 2),
    "of replicas here": ({**_REPLICAS, "parallel_config__data_parallel_size_local": 2}, 2),
    "of programs, of which two have devices here": (_PROGRAMS, 2),
    "of a program that takes all devices": (
        {**_PROGRAMS, "parallel_config__local_world_size": 2},
        2,
    ),
    "in an engine that knows its replica alone": ({"additional_config": {rules.RANKS: 4}}, 4),
}


@pytest.mark.parametrize(("changes", "ranks"), RANKS.values(), ids=RANKS)
def test_ranks_that_share_the_memory_of_a_machine(changes: dict[str, Any], ranks: int) -> None:
    assert rules.ranks_of_this_memory(config(**changes)) == ranks


@pytest.mark.parametrize("changes", RIGHT.values(), ids=RIGHT)
def test_what_is_served(changes: dict[str, Any]) -> None:
    given = config(**{n: v for n, v in changes.items() if n != "model_config"})
    if "model_config" in changes:
        given.model_config = None
    rules.require(given)


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({}, None),
        ({"cache_config__mamba_cache_mode": "align"}, "--mamba-cache-mode align"),
        (
            {"speculative_config": SimpleNamespace(method="ngram")},
            "--speculative-config method=ngram",
        ),
    ],
)
def test_layers_with_states(changes: dict[str, Any], option: str | None) -> None:
    model = {
        "model_config__is_hybrid": True,
        "model_config__architectures": ["Qwen3NextForCausalLM"],
    }
    found = list(rules.problems(config(**model, **changes)))
    assert [problem.option for problem in found] == ([] if option is None else [option])


def test_states_are_not_transferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "triton_missing", lambda: None)
    given = config(model_config__is_hybrid=True, kv_transfer_config=transfer("kv_producer"))
    (problem,) = rules.problems(given)
    assert "FlagosConnector takes caches of attention, not states" in str(problem)


def test_a_sleep_changes_addresses_that_graphs_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "captures_graphs", lambda: True)
    given = config(model_config__enable_sleep_mode=True)
    given.compilation_config = SimpleNamespace(cudagraph_mode=named("FULL"))
    (problem,) = rules.problems(given)
    assert problem.option == "--enable-sleep-mode with cudagraph_mode=FULL"
    given.compilation_config.cudagraph_mode = named("NONE")
    assert list(rules.problems(given)) == []


def test_everything_wrong_is_listed_at_once() -> None:
    given = config(model_config__quantization="awq", cache_config__cache_dtype="nvfp4")
    with pytest.raises(ValueError, match=r"(?s)--quantization awq.*\n.*--kv-cache-dtype nvfp4"):
        rules.require(given)
    with rules.collected() as found:
        rules.require(given)
    assert [problem.option for problem in found] == ["--quantization awq", "--kv-cache-dtype nvfp4"]

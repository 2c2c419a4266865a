"""vLLM itself on the host vendor, with tiny models of random weights, beside transformers on the CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from adapters.torch.tests.launch import free_port
from adapters.vllm.tests.conftest import environment
from vllm_flagos import releases

pytestmark = pytest.mark.vllm

Report = Callable[..., dict[str, Any]]
FIRST = "vllm.v1.worker.gpu_model_runner"
SECOND = "vllm.v1.worker.gpu.model_runner"
EVERY_STEP = {
    "vllm::paged_attention",
    "vllm::reshape_and_cache",
    "vllm::slot_mapping",
    "_C::rms_norm",
    "_C::fused_add_rms_norm",
    "_C::rotary_embedding",
}


def test_a_dense_model(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("greedy.py", models / "dense", {})
    assert found["tokens"] == expected["dense"]
    assert found["calls"].keys() == EVERY_STEP | {"_C::silu_and_mul"}
    assert found["runner"] == FIRST and found["torch_cuda_kept"]


def test_the_comparison_notices_another_model(
    report: Report, models: Path, expected: dict[str, Any]
) -> None:
    assert expected["dense"] != expected["adapter1"] != expected["adapter2"]


def test_experts(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("greedy.py", models / "experts", {})
    assert found["tokens"] == expected["experts"]
    assert found["calls"].keys() == EVERY_STEP | {"vllm::fused_experts", "_moe_C::topk_softmax"}


def test_experts_in_groups(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("greedy.py", models / "grouped", {})
    assert found["tokens"] == expected["grouped"]
    assert {"vllm::fused_experts", "_moe_C::grouped_topk"} <= found["calls"].keys()


@pytest.mark.parametrize("strict", ["0", "1"])
def test_a_program_that_is_strict(
    report: Report, models: Path, expected: dict[str, Any], strict: str
) -> None:
    found = report("greedy.py", models / "dense", {}, FLAGOS_STRICT=strict)
    assert found["tokens"] == expected["dense"]


def test_memory_is_measured(report: Report, models: Path, expected: dict[str, Any]) -> None:
    options = {"kv_cache_memory_bytes": None, "gpu_memory_utilization": 0.05}
    found = report("greedy.py", models / "dense", options)
    assert found["tokens"] == expected["dense"]


APART = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "FLAGOS_HOST_DEVICES": "2"}
ALL_OF_IT = {"kv_cache_memory_bytes": None, "gpu_memory_utilization": 1.0}


@pytest.mark.parametrize("ranks", [1, 2])
def test_memory_that_other_programs_have(report: Report, models: Path, ranks: int) -> None:
    options = {**ALL_OF_IT, "tensor_parallel_size": ranks}
    words = rf"GiB of this machine's memory for all its ranks \({ranks}\)"
    with pytest.raises(pytest.fail.Exception, match=words):
        report("greedy.py", models / "dense", options, FLAGOS_HOST_DEVICES="2")


def test_memory_that_other_programs_have_is_not_for_replicas(report: Report, models: Path) -> None:
    """They start by themselves, so that none knows what is another's: the program that starts them asks."""
    options = {**ALL_OF_IT, "data_parallel_size": 2}
    with pytest.raises(pytest.fail.Exception, match=r"for all its ranks \(2\)") as found:
        report("streams.py", models / "dense", options, **APART)
    assert "EngineCore" not in str(found.value)


@pytest.mark.parametrize("kind", ["tensor", "data"])
def test_ranks_share_the_memory_of_a_machine(
    report: Report, models: Path, expected: dict[str, Any], kind: str
) -> None:
    share = 0.06
    options = {
        "kv_cache_memory_bytes": None,
        "gpu_memory_utilization": share,
        f"{kind}_parallel_size": 2,
    }
    found = report("streams.py", models / "dense", options, **APART)
    assert found["whole"] == expected["dense"] * 2
    asked = share * psutil.virtual_memory().total
    assert len(found["memory"]) == 2
    # What steps leave in the allocator is not in vLLM's measurement.
    assert sum(found["memory"]) < 1.1 * asked < 3 * min(found["memory"]), found["memory"]


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_the_engine_in_a_process_of_its_own(
    report: Report, models: Path, expected: dict[str, Any], name: str
) -> None:
    found = report("greedy.py", models / name, {}, VLLM_ENABLE_V1_MULTIPROCESSING="1")
    assert found["tokens"] == expected[name]
    assert found["calls"].keys() >= EVERY_STEP and found["torch_cuda_kept"]


def test_a_device_that_was_chosen(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("greedy.py", models / "dense", {"device_ids": [1]}, FLAGOS_HOST_DEVICES="2")
    assert found["tokens"] == expected["dense"] and found["device"] == "flagos:1"


RANKS = {
    "tensor parallel": ("dense", {"tensor_parallel_size": 2}),
    "tensor parallel experts": ("experts", {"tensor_parallel_size": 2}),
    "experts by rank": ("experts", {"tensor_parallel_size": 2, "enable_expert_parallel": True}),
    "pipeline parallel": ("dense", {"pipeline_parallel_size": 2}),
}


@pytest.mark.parametrize(("name", "options"), RANKS.values(), ids=RANKS)
def test_two_ranks(
    report: Report, models: Path, expected: dict[str, Any], name: str, options: dict[str, Any]
) -> None:
    found = report(
        "greedy.py",
        models / name,
        options,
        VLLM_ENABLE_V1_MULTIPROCESSING="1",
        FLAGOS_HOST_DEVICES="2",
    )
    assert found["tokens"] == expected[name]
    assert found["calls"].keys() >= EVERY_STEP  # of both ranks, whose fallbacks would be told, too
    assert found["gathered"] == [[], []]  # shared memory has all reductions


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_compiled(report: Report, models: Path, expected: dict[str, Any], name: str) -> None:
    found = report("greedy.py", models / name, {"enforce_eager": False})
    assert found["tokens"] == expected[name]
    # Inductor fuses what the operators of the plan compute otherwise; attention stays one of them.
    assert "_C::rms_norm" not in found["calls"] and "vllm::paged_attention" in found["calls"]


def test_a_cache_too_small_for_all_requests(
    report: Report, models: Path, expected: dict[str, Any]
) -> None:
    options = {"num_gpu_blocks_override": 17, "disable_log_stats": False}
    found = report("greedy.py", models / "dense", options)
    assert found["tokens"] == expected["dense"] and found["preemptions"] > 0


STREAMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "one engine": ("dense", {}, 1),
    "replicas of two ranks": (
        "experts",
        {"data_parallel_size": 2, "tensor_parallel_size": 2, "enable_expert_parallel": True},
        4,
    ),
}


@pytest.mark.parametrize(("name", "options", "ranks"), STREAMS.values(), ids=STREAMS)
def test_streams_of_the_asynchronous_engine(
    report: Report,
    models: Path,
    expected: dict[str, Any],
    name: str,
    options: dict[str, Any],
    ranks: int,
) -> None:
    found = report(
        "streams.py",
        models / name,
        options,
        VLLM_ENABLE_V1_MULTIPROCESSING="1",
        FLAGOS_HOST_DEVICES=str(ranks),
    )
    assert found["whole"] == expected[name] * 2
    begun = found["begun"]
    assert len(begun) >= 5 and begun == expected[name][4][: len(begun)]
    assert found["of_the_ranks"] == [{}] * ranks


@pytest.mark.parametrize(
    "options",
    [{}, {"enable_expert_parallel": True}, {"enforce_eager": False}],
    ids=["parts of experts", "experts by rank", "compiled"],
)
def test_replicas_that_share_experts(
    report: Report, models: Path, expected: dict[str, Any], options: dict[str, Any]
) -> None:
    """One has a prompt of one token, and goes on with batches of nothing when it is done."""
    found = report("replicas.py", models / "experts", options, free_port(), FLAGOS_HOST_DEVICES="2")
    first, *others = expected["experts"]
    assert found["tokens"] == [others, [first[:12]]]
    of_both = [calls["vllm::fused_experts"] for calls in found["calls"]]
    assert of_both[0] == of_both[1] > 3 * 40


def test_a_replica_that_dies_ends_the_others(
    report: Report, release: releases.Release, models: Path
) -> None:
    found = report(
        "killed.py",
        models / "experts",
        {"data_parallel_size": 2},
        VLLM_ENABLE_V1_MULTIPROCESSING="1",
        FLAGOS_HOST_DEVICES="2",
    )
    assert len(found["ended"]) == 4 and found["seconds"] < 60
    assert all(end.startswith("EngineDeadError: ") for end in found["ended"]), found["ended"]
    assert found["alive"] == []
    if release.minor == "0.26":  # in 0.33 the processes may be ended before one logs it
        assert "died unexpectedly (exit code: -9)" in found["said"]


def test_a_replica_that_dies_in_a_program_of_its_own(report: Report, models: Path) -> None:
    found = report(
        "replicas.py", models / "experts", {}, free_port(), "killed", FLAGOS_HOST_DEVICES="2"
    )
    assert found["ended"][0] not in (0, -9) and found["ended"][1] == -9
    assert "RuntimeError" in found["said"] and "peer" in found["said"], found["said"]


def test_an_encoder_and_a_decoder(report: Report, tmp_path: Path) -> None:
    found = report("speech.py", tmp_path)
    assert found["tokens"] == found["expected"] and len(set(found["tokens"])) > 3
    assert "vllm::prefill_attention" in found["calls"] or "vllm::paged_attention" in found["calls"]


MEDIA: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "images of Qwen3-VL": ("qwen3_vl", {}, {}),
    "images of LLaVA": ("llava", {}, {}),
    "sounds of Qwen2-Audio": ("qwen2_audio", {}, {}),
    "images, strict": ("qwen3_vl", {}, {"FLAGOS_STRICT": "1"}),
    "images, compiled": ("qwen3_vl", {"enforce_eager": False}, {}),
    "images on two ranks": (
        "qwen3_vl",
        {"tensor_parallel_size": 2},
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "FLAGOS_HOST_DEVICES": "2"},
    ),
    "images by rank": (
        "llava",
        {"tensor_parallel_size": 2, "mm_encoder_tp_mode": "data"},
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "FLAGOS_HOST_DEVICES": "2"},
    ),
}


@pytest.mark.parametrize(("kind", "options", "variables"), MEDIA.values(), ids=MEDIA)
def test_prompts_with_media(
    report: Report, tmp_path: Path, kind: str, options: dict[str, Any], variables: dict[str, str]
) -> None:
    found = report("media.py", kind, tmp_path, options, **variables)
    assert found["tokens"] == found["expected"]
    assert found["again"] == found["expected"]
    # The first prompt and the fourth have the same words.
    assert found["expected"][0] != found["expected"][3]
    if not variables:
        assert found["encoded"] == 3  # of twelve places
        turned = {"vllm::rotate", "vllm::rotate_in_three_axes"} & found["calls"].keys()
        # Compiled, the text's rotation is Inductor's.
        assert len(turned) == (0 if kind != "qwen3_vl" else 1 if options else 2)


STATES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "Qwen3-Next": ("qwen3_next", {}, {}),
    "Qwen3-Next, narrow values": ("qwen3_next-narrow", {}, {}),
    "Mamba": ("mamba", {}, {}),
    "Mamba 2": ("mamba2", {}, {}),
    "Jamba": ("jamba", {}, {}),
    "compiled": ("mamba2", {"enforce_eager": False}, {}),
    "two ranks": (
        "qwen3_next",
        {"tensor_parallel_size": 2},
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "FLAGOS_HOST_DEVICES": "2"},
    ),
}


@pytest.mark.parametrize(("kind", "options", "variables"), STATES.values(), ids=STATES)
def test_layers_with_states(
    report: Report, tmp_path: Path, kind: str, options: dict[str, Any], variables: dict[str, str]
) -> None:
    found = report("hybrid.py", kind, tmp_path, options, **variables)
    assert found["tokens"] == found["expected"]
    # In rows of the cache that have states of other sequences, also for the prompt of one token.
    assert found["again"] == found["expected"]
    assert "vllm::causal_conv1d_update" in found["calls"]


def test_the_warm_up_leaves_out_what_does_not_compile(report: Report) -> None:
    """By Triton's compiler, which needs no GPU: of sizes of heads some compile, and those alone are warmed up."""
    found = report("preparation.py", CUDA_VISIBLE_DEVICES="")["found"]
    assert {warmed for _, warmed in found} == {True, False}
    for own, warmed in found:
        assert own is True if warmed else "Mismatched type for mask_2d" in str(own), (own, warmed)


SLEEPS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "dense": ("dense", {}, {}),
    "kept by name": ("dense", {"sleep_preserve_parameter_names": ["*"]}, {}),
    "experts": ("experts", {}, {}),
    "two ranks": (
        "dense",
        {"tensor_parallel_size": 2},
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "FLAGOS_HOST_DEVICES": "2"},
    ),
}


@pytest.mark.parametrize(("name", "options", "variables"), SLEEPS.values(), ids=SLEEPS)
def test_sleep_and_new_weights(
    report: Report,
    release: releases.Release,
    models: Path,
    tmp_path: Path,
    name: str,
    options: dict[str, Any],
    variables: dict[str, str],
) -> None:
    first = release.minor == "0.26"
    if first and options.keys() & {"sleep_preserve_parameter_names"}:
        pytest.skip("vLLM 0.26 keeps nothing by name")
    file = tmp_path / "new.safetensors"
    found = report("sleep.py", models / name, options, file, **variables)
    more = 1 if not variables else 4 * (not first)
    assert len(found["done"]) == 22 + more + ("sleep_preserve_parameter_names" in options)


def test_sampling_and_the_cache(report: Report, models: Path) -> None:
    found = report("features.py", models / "dense")
    assert len(found["done"]) == 24
    assert found["calls"]["_C::apply_repetition_penalties_"] == 24  # two requests of 12 tokens


def test_grammars(report: Report, models: Path) -> None:
    assert report("grammar.py", models / "dense")["found"].keys() == {"yes", "n"}


@pytest.mark.parametrize("options", [{}, {"enforce_eager": False}], ids=["eager", "compiled"])
def test_adapters_alone_and_mixed(
    report: Report, models: Path, expected: dict[str, Any], options: dict[str, Any]
) -> None:
    found = report("lora.py", models, options)
    names = ("dense", "adapter1", "adapter2")
    assert found["alone"] == [expected[name] for name in names]
    assert found["mixed"] == found["alone"]
    assert {"vllm::lora_shrink", "vllm::lora_expand"} <= found["calls"].keys()


def test_adapters_with_a_layer_of_their_own(report: Report, release: releases.Release) -> None:
    if release.minor == "0.26":
        pytest.skip("vLLM 0.26 has no such adapters")
    found = report("classifier.py")
    assert np.allclose(found["found"], found["expected"], atol=1e-5)
    assert "vllm::lora_shrink" in found["calls"]


def test_speculation(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("speculation.py", models / "dense")
    assert found["tokens"] == expected["dense"]
    assert found["random"] == found["again"]
    calls = {"vllm::reject_greedily", "vllm::reject_randomly", "vllm::recover_tokens"}
    assert calls <= found["calls"].keys()


def test_embeddings(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("pooling.py", models / "dense")["embeddings"]
    pairs = zip(found, expected["embeddings"], strict=True)
    assert (
        max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True)) < 1e-5
    )


def _apart(ours: list[float], theirs: list[float]) -> float:
    """The mean distance."""
    pairs = list(zip(ours, theirs, strict=True))
    return sum(abs(a - b) for a, b in pairs) / len(pairs)


def test_eight_bits(report: Report, models: Path) -> None:
    exact, half, weights, cache = (
        report("scores.py", models / "dense", options)
        for options in (
            {},
            {"dtype": "bfloat16"},
            {"dtype": "bfloat16", "quantization": "fp8"},
            {"dtype": "bfloat16", "kv_cache_dtype": "fp8"},
        )
    )

    def distance(found: dict[str, Any]) -> float:
        return _apart(found["scores"], exact["scores"])

    # Measured: 0.024, 0.236 and 0.106 nats a token. Another model's tokens are several nats away.
    assert 0 < distance(half) < 0.05 < distance(cache) < 0.2 and distance(weights) < 0.4
    assert "_C::dynamic_scaled_fp8_quant" in weights["calls"]


@pytest.mark.parametrize("name", ["fp8", "compressed-tensors"])
def test_weights_with_a_scale_for_each_block(report: Report, tmp_path: Path, name: str) -> None:
    found = report("blocks.py", tmp_path, {}, FORMAT=name)

    def distance(other: str) -> float:
        return _apart(found["scores"], found[other])

    # Measured: 0.22 and 0.31 nats a token from the numbers that are meant and from those before they had 8 bits.
    assert 0 < distance("meant") < 0.26 < distance("before")
    assert found["calls"]["vllm::block_scaled_mm"] > 0
    compiled = report("blocks.py", tmp_path, {"enforce_eager": False}, FORMAT=name)
    assert compiled["scores"] == found["scores"]
    assert compiled["calls"]["_C::fused_add_rms_norm"] > 0


@pytest.mark.parametrize("quantization", [None, "fp8"])
def test_compiled_operators_have_the_bits_of_eager(
    report: Report, models: Path, quantization: str | None
) -> None:
    eager = {"dtype": "bfloat16", "quantization": quantization}
    compiled = {**eager, "enforce_eager": False, "compilation_config": {"custom_ops": ["all"]}}
    found, expected = (
        report("scores.py", models / "dense", options)["scores"] for options in (compiled, eager)
    )
    assert found == expected


def test_eight_bits_for_few_tokens(report: Report, models: Path) -> None:
    """vLLM pads what it quantizes to 17 rows."""
    found = report("greedy.py", models / "dense", {"dtype": "bfloat16", "quantization": "fp8"})
    assert all(len(tokens) > 1 for tokens in found["tokens"]), found


# A step of few tokens, because the interpreter takes seconds for one; each runner warms up the steps of its sizes.
INTERPRETED: dict[str, tuple[str, dict[str, Any], str]] = {
    "second runner": ("dense", {}, SECOND),
    "first runner": ("dense", {}, FIRST),
    "experts": ("experts", {}, FIRST),
    "speculation": (
        "dense",
        {
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 2,
                "prompt_lookup_min": 1,
                "prompt_lookup_max": 2,
            }
        },
        FIRST,
    ),
}


@pytest.mark.parametrize(("name", "options", "runner"), INTERPRETED.values(), ids=INTERPRETED)
def test_vllms_triton_kernels(
    report: Report,
    models: Path,
    expected: dict[str, Any],
    name: str,
    options: dict[str, Any],
    runner: str,
) -> None:
    """Tokens are right, and every operator that requests call by Triton was called before them."""
    found = report(
        "interpreted.py",
        models / name,
        {"max_num_batched_tokens": 8, "max_num_seqs": 4, **options},
        TRITON_INTERPRET="1",
        CUDA_VISIBLE_DEVICES="",
        VLLM_USE_V2_MODEL_RUNNER=str(int(runner == SECOND)),
    )
    assert found["tokens"] == [tokens[:4] for tokens in expected[name][1:4]]
    assert found["winner"] == "triton.paged_attention" and found["runner"] == runner
    assert {"vllm::paged_attention", "vllm::reshape_and_cache"} <= set(found["warmed"])
    assert found["late"] == []


def test_vllms_triton_kernels_of_images(report: Report, tmp_path: Path) -> None:
    """In 16 bits, for which attention of encoders has kernels."""
    interpreted = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    found = report("media.py", "qwen3_vl", tmp_path, {"dtype": "float16"}, **interpreted)
    assert found["tokens"] == found["again"] == found["expected"]
    ours = {"vllm::expanded_attention", "vllm::rotate", "vllm::rotate_in_three_axes"}
    assert ours <= found["calls"].keys()


def test_vllms_triton_kernels_of_adapters(report: Report) -> None:
    """vLLM's own wrapper of LoRA, over its kernels and over the references, in a mixed batch and without adapters."""
    found = report("adapters.py", TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    assert found["winners"] == ["triton.lora_shrink", "triton.lora_expand"]
    for batch, ours in found["triton"].items():
        theirs = found["reference"][batch]
        assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 0.05, batch
    mixed, none = found["triton"].values()
    assert max(abs(a - b) for a, b in zip(mixed, none, strict=True)) > 1
    # 2 batches, each a layer and the logits, by each implementation.
    assert found["calls"]["vllm::lora_shrink"] == found["calls"]["vllm::lora_expand"] == 8


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_server(models: Path, tmp_path: Path, replicas: int) -> None:
    port = free_port()
    command = "-m vllm.entrypoints.cli.main serve --host 127.0.0.1 --dtype float32 --enforce-eager"
    options = f"--port {port} --max-model-len 256 --kv-cache-memory-bytes 67108864 "
    options += f"--data-parallel-size {replicas}"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, *command.split(), *options.split(), str(models / "dense")],
            env=environment(os.environ["VLLM_PATH"], VLLM_CACHE_ROOT=str(tmp_path)),
            stdout=log,
            stderr=log,
        )
    prompt = [9, 8, 7, 6]
    try:
        _wait(f"http://127.0.0.1:{port}/health", server, tmp_path / "log")
        body = {
            "model": str(models / "dense"),
            "prompt": prompt,
            "max_tokens": 8,
            "temperature": 0,
            "return_token_ids": True,
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)["choices"][0]["token_ids"]
    finally:
        server.terminate()
        server.wait(timeout=60)
    import tiny

    assert found == tiny.greedy(tiny.dense(), [prompt], new=8)[0]


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the server answers; fails if it ends before, or after ten minutes."""
    for _ in range(1200):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    pytest.fail(log.read_text()[-5000:])


REFUSED = {
    "sleep": ({"enable_sleep_mode": True, "sleep_mode_backend": "criu"}, "--sleep-mode-backend"),
    "quantization": ({"quantization": "awq"}, "awq"),
    "attention": ({"attention_backend": "FLASH_ATTN"}, "vllm::paged_attention"),
    "cache": ({"kv_cache_dtype": "int8_per_token_head"}, "--kv-cache-dtype int8_per_token_head"),
    "ranks": ({"tensor_parallel_size": 4}, "4 ranks need 4 flagos devices, and there are 2"),
    "draft model": (
        {"speculative_config": {"method": "ngram_gpu", "num_speculative_tokens": 2}},
        "--speculative-config method=ngram_gpu",
    ),
}


@pytest.mark.parametrize(("options", "named"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_served_is_an_error_that_names_it(
    models: Path, options: dict[str, Any], named: str
) -> None:
    from adapters.vllm.tests.conftest import PROGRAMS

    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "greedy.py"), str(models / "dense"), json.dumps(options)],
        env=environment(os.environ["VLLM_PATH"]),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 and re.search(named, done.stderr), done.stderr[-3000:]


CHECKS: dict[str, tuple[list[str], int, list[str]]] = {
    "right": (["--dtype", "float32"], 0, []),
    "wrong twice": (
        ["--attention-backend", "FLASH_ATTN", "--tensor-parallel-size", "4"],
        1,
        ["--tensor-parallel-size", "--attention-backend FLASH_ATTN"],
    ),
    "refused by vLLM": (["--enable-cumem-allocator"], 1, ["vLLM refuses it"]),
    "sleep": (["--enable-sleep-mode"], 0, []),
    "replicas": (["--data-parallel-size", "2", "--gpu-memory-utilization", "0.01"], 0, []),
}


def check(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`flagos vllm check`, in a folder."""
    command = "import sys; from flagos.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", command, "vllm", "check", *arguments],
        env=environment(os.environ["VLLM_PATH"], VLLM_PLUGINS=None),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(("options", "status", "named"), CHECKS.values(), ids=CHECKS)
def test_the_check_before_a_model_loads(
    models: Path, options: list[str], status: int, named: list[str]
) -> None:
    done = check("--json", str(models / "dense"), *options)
    assert done.returncode == status, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert [problem["option"] for problem in found["problems"]] == named
    assert bool(found["serves"]) == (status == 0)
    told, words = found["options"], " ".join(named)
    assert list(told) == [word for word in options if word.startswith("-")]
    for option, verdict in told.items():
        assert verdict == (
            "unknown" if "refuses" in words else "refused" if option in words else "served"
        )


def test_the_check_of_replicas_that_share_experts(models: Path) -> None:
    options = ["--data-parallel-size", "2", "--enable-expert-parallel"]
    done = check("--json", str(models / "experts"), *options)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["options"]["--data-parallel-size"] == "served"


def test_the_check_names_an_operator_that_a_route_leaves_without_an_implementation(
    models: Path, tmp_path: Path
) -> None:
    route = '[ops]\n"vllm::paged_attention" = "impl:triton.paged_attention"\n'
    (tmp_path / "flagos.toml").write_text(route)
    done = check(str(models / "dense"), folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr[-3000:]
    assert (
        "vllm::paged_attention: no implementation of it is usable, by flagos.toml:2" in done.stdout
    )


TAKEN = """
import sys
from vllm.platforms import current_platform
from vllm.plugins import load_general_plugins
load_general_plugins()
print(type(current_platform).__name__, "vllm_flagos.platform" in sys.modules)
"""
CHOICES: dict[str, tuple[dict[str, str], str]] = {
    "asked for": ({}, "FlagosPlatform True"),
    "asked for, and without a device": ({"FLAGOS_VENDOR": "nothere"}, "flagos cannot serve vLLM:"),
    "not asked for": (
        {"VLLM_PLUGINS": "", "FLAGOS_VENDOR": "nothere"},
        "UnspecifiedPlatform False",
    ),
}


@pytest.mark.parametrize(("variables", "words"), CHOICES.values(), ids=CHOICES)
def test_the_platform_that_vllm_takes(variables: dict[str, str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKEN],
        env=environment(os.environ["VLLM_PATH"], **variables),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert words in (done.stderr if done.returncode else done.stdout), done.stderr[-3000:]
    assert bool(done.returncode) == words.startswith("flagos cannot")


def test_the_double_of_the_seam_is_true(release: releases.Release) -> None:
    """What `seam/` has of vLLM is there in vLLM, with the same lines where vLLM decides about plugins."""
    from adapters.vllm.tests import seam_facts

    assert seam_facts.differences(Path(os.environ["VLLM_PATH"]), release) == []


def test_the_facts_of_the_release_are_those_that_are_kept(release: releases.Release) -> None:
    """`make vllm-diff` compares others with them. An installed vLLM has neither its pins nor its kernels' schemas."""
    from adapters.vllm.tests.facts import __main__ as facts
    from adapters.vllm.tests.facts import reading

    found = facts.changes(facts.kept(release.minor), reading.read(Path(os.environ["VLLM_PATH"])))
    assert [key for _, key, *_ in found if not key.startswith(("operator", "pin"))] == []

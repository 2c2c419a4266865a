"""SGLang itself on the host vendor, with tiny models of random weights, beside transformers on the CPU.

A start takes half a minute, so each engine is asked for much.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.sglang.tests.conftest import PROGRAMS, ROOT, TINY, Report, environment
from adapters.torch.tests.launch import free_port

pytestmark = pytest.mark.sglang

EVERY_STEP = {
    "sglang::paged_attention",
    "sglang::rms_norm",
    "sglang::fused_add_rms_norm",
    "sglang::rotary_embedding",
    "sglang::store_kv_cache",
}
STRICT = {"FLAGOS_STRICT": "1"}


def test_what_a_request_may_ask_for(report: Report, models: Path, expected: dict[str, Any]) -> None:
    options = {"constrained_json_disable_any_whitespace": True}
    found = report("features.py", models / "dense", options, **STRICT)
    dense = expected["dense"]
    assert found["tokens"] == found["after"] == dense
    for scored, tokens, scores in zip(found["logprobs"], dense, expected["scores"], strict=True):
        assert scored["tokens"] == tokens[:8] and scored["best"] == tokens[:8]
        assert scored["prompt"][1:] + scored["output"] == pytest.approx(scores, abs=1e-4)
    import more

    prompts, penalties = more.tiny.prompts(), {
        "frequency_penalty": 0.7,
        "presence_penalty": 0.4,
        "repetition_penalty": 1.3,
    }  # fmt: skip
    model = more.tiny.dense()
    late, early = (more.penalized(model, prompts[2], 40, penalties, one) for one in (True, False))
    assert found["penalized"] == [late, dense[1]] and late != early
    for one, two in zip(found["scored"], expected["labels"], strict=True):
        assert one == pytest.approx(two, abs=1e-4)
    first = dense[1]
    assert found["biased"] == [7] * 40
    assert found["stopped"] == first[: first.index(first[5]) + 1]
    assert len(found["least"]) > 20 and first[5] not in found["least"][:20]
    assert found["several"] == [first] * 3
    assert found["top_k"] == found["top_p"] == found["min_p"] == first
    assert found["sampled_differ"]
    made = json.loads(found["json"])
    assert made.keys() == {"name", "age"} and made["age"] in (1, 20, 300)
    assert re.fullmatch("(ab|cd){2}[0-9]{3}", found["regex"])
    assert found["beside_grammars"] == dense[3]
    streamed = found["streamed"]
    assert [one == two for one, two in zip(streamed, dense, strict=True)] == [
        *(True, True, False, True, True)
    ]
    assert streamed[2] == dense[2][: len(streamed[2])]  # which was aborted
    assert found["calls"].keys() == EVERY_STEP | {
        "sglang::qk_norm",
        "sglang::silu_and_mul",
        "sglang::apply_token_bitmask",
    }


def test_penalties_without_overlap(report: Report, models: Path) -> None:
    options = {"disable_overlap_schedule": True, "constrained_json_disable_any_whitespace": True}
    found = report("features.py", models / "dense", options)
    import features
    import more

    early = more.penalized(
        more.tiny.dense(), more.tiny.prompts()[2], 40, features.PENALTIES, late=False
    )
    assert found["penalized"][0] == early


MODELS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "llama": ("llama", {}, STRICT),
    "experts": ("experts", {}, STRICT),
    "experts in groups": ("grouped", {}, {}),
    "windows and caps": ("windows", {}, STRICT),
    "pages of 16": ("dense", {"page_size": 16}, {}),
    "without a cache of prefixes": ("dense", {"disable_radix_cache": True}, {}),
    "two ranks of tensors": ("dense", {"tp_size": 2}, STRICT),
    "two ranks of experts": ("experts", {"tp_size": 2, "ep_size": 2}, STRICT),
    "two ranks of layers": ("dense", {"pp_size": 2}, {}),
    "two replicas": ("dense", {"dp_size": 2}, {}),
}


@pytest.mark.parametrize(("name", "options", "variables"), MODELS.values(), ids=MODELS)
def test_greedy_tokens(
    report: Report,
    models: Path,
    expected: dict[str, Any],
    name: str,
    options: dict[str, Any],
    variables: dict[str, str],
) -> None:
    found = report("greedy.py", models / name, options, FLAGOS_HOST_DEVICES="2", **variables)
    assert found["tokens"] == expected[name] and found["many"] == expected[name] * 5
    assert found["again"] == expected[name][-1] and found["torch_cuda_kept"]
    if name != "windows":  # whose norms are Gemma's own
        assert found["calls"].keys() >= EVERY_STEP
    assert (found["cached"] > 0) != bool(options.get("disable_radix_cache")) or "dp_size" in options


def test_adapters(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report(
        "low_rank.py", models / "dense", models / "adapter1", models / "adapter2", {}, **STRICT
    )
    assert found["alone"] == expected["adapter1"] and found["none"] == expected["dense"]
    for number, mixed in enumerate(found["mixed"]):
        names = ("adapter1", "dense", "adapter2")
        assert mixed == [expected[name][number] for name in names]


def test_embeddings(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("pooling.py", models / "dense", {}, **STRICT)
    for one, two in zip(found["embeddings"], expected["embeddings"], strict=True):
        assert one == pytest.approx(two, abs=1e-5)


def test_reranking(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("reranking.py", models / "cross", {}, **STRICT)
    scores = [one if isinstance(one, float) else one[0] for one in found["scores"]]
    assert scores == pytest.approx(expected["pairs"], abs=1e-4)


@pytest.mark.parametrize("backend", ["llguidance"])
def test_other_grammars(
    report: Report, models: Path, expected: dict[str, Any], backend: str
) -> None:
    options = {
        "grammar_backend": backend,
        "constrained_json_disable_any_whitespace": True,
        "json_model_override_args": '{"eos_token_id": 511}',
    }
    found = report("grammars.py", models / "dense", options, **STRICT)
    made = json.loads(found["json"])
    assert made.keys() == {"name", "age"} and made["age"] in (1, 20, 300)
    assert re.fullmatch("(ab|cd){2}[0-9]{3}", found["regex"])
    assert found["beside"] == expected["dense"][3] and found["after"] == expected["dense"]


@pytest.mark.parametrize(
    "options",
    [
        {"quantization": "fp8", "dtype": "bfloat16"},
        {"kv_cache_dtype": "fp8_e4m3"},
        {"kv_cache_dtype": "fp8_e5m2"},
    ],
    ids=["weights", "cache", "cache of e5m2"],
)
def test_eight_bits(
    report: Report, models: Path, expected: dict[str, Any], options: dict[str, Any]
) -> None:
    """Tokens part after some steps: 8 bits round. The first ones are those of the whole numbers."""
    found = report("greedy.py", models / "dense", options)
    pairs = zip(found["tokens"], expected["dense"], strict=True)
    assert sum(one[0] == two[0] for one, two in pairs) >= 3
    assert found["tokens"] != expected["dense"]
    assert found["many"][: len(found["tokens"])] and found["again"] == found["tokens"][-1]


def test_weights_and_memory_change(report: Report, models: Path, expected: dict[str, Any]) -> None:
    found = report("weights.py", models / "dense", models / "other", {})
    assert found["first"] == found["from_the_device"] == found["resumed"] == expected["dense"]
    assert found["updated"] == found["from_disk"] == expected["other"]
    assert found["not_released"].endswith("is not released")
    assert "is released already" in found["twice"]
    assert "memory is released" in found["while_released"]


def test_weights_from_another_process(
    report: Report, models: Path, expected: dict[str, Any]
) -> None:
    found = report(
        "distributed.py", models / "dense", models / "other", {}, FLAGOS_HOST_DEVICES="2"
    )
    assert found["first"] == expected["dense"] and found["updated"] == expected["other"]


def test_delayed_streams(report: Report, models: Path, expected: dict[str, Any]) -> None:
    """Items of streams wait at random, as an asynchronous chip's do."""
    variables = {"FLAGOS_HOST_DELAY_US": "300", "FLAGOS_HOST_SEED": "5"}
    found = report("greedy.py", models / "dense", {}, **variables)
    assert found["tokens"] == expected["dense"] and found["many"] == expected["dense"] * 5


# The last two prompts are longer than the window of 16 of the other models, whose norms are torch's.
INTERPRETED = {
    "dense": {
        *(EVERY_STEP - {"sglang::paged_attention"}),
        *("sglang::decode_attention", "sglang::extend_attention"),
        *("sglang::qk_norm", "sglang::silu_and_mul"),
    },
    "experts": {
        *(EVERY_STEP - {"sglang::paged_attention"}),
        *("sglang::decode_attention", "sglang::extend_attention", "sglang::qk_norm"),
        *("sglang::fused_experts", "sglang::align_experts", "sglang::silu_and_mul"),
    },
    "windows": {
        *("sglang::decode_attention", "sglang::extend_attention"),
        *("sglang::rotary_embedding", "sglang::store_kv_cache", "sglang::gelu_tanh_and_mul"),
    },
    "cohere": {
        *("sglang::decode_attention", "sglang::extend_attention"),
        *("sglang::rotary_embedding", "sglang::store_kv_cache", "sglang::silu_and_mul"),
    },
}


@pytest.mark.parametrize(("model", "called"), INTERPRETED.items(), ids=INTERPRETED)
def test_kernels_of_triton(
    report: Report, models: Path, expected: dict[str, Any], model: str, called: set[str]
) -> None:
    """Interpreted: attention, cache, norms, rotations, activations, and the preparation of batches by SGLang's own."""
    variables = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", **STRICT}
    found = report("interpreted.py", models / model, **variables)
    assert found["tokens"] == [tokens[:8] for tokens in expected[model][1:4]]
    assert found["calls"].keys() == called


def test_experts_by_triton(report: Report) -> None:
    """Beside the reference in float64, with what models and tables of configurations may bring."""
    result = report("experts.py", TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    found = result["found"]
    assert "gives a bias the weight" in found.pop("a bias and weights on the input")
    assert max(found.values()) < 1e-5, found
    blocks = ["BLOCK_SIZE_K", "BLOCK_SIZE_M", "BLOCK_SIZE_N", "GROUP_SIZE_M"]
    assert result["configurations"] == [blocks, blocks]


def test_graphs_read_what_steps_without_them_read(report: Report) -> None:
    found = report("tables.py")
    assert found["differences"] == [0.0] * 4 and found["moved"] > 0


def test_where_torch_has_cuda_no_module_takes_it(report: Report) -> None:
    found = report("simulated_cuda.py", {})
    assert found["asked"] > 40 and found["cuda"] == [] and found["kernels"] == []


# ------------------------------------------------------------------------------------------ the server


@pytest.fixture(scope="module")
def server(
    models: Path, sglang_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    port, log = free_port(), tmp_path_factory.mktemp("server") / "log"
    adapters = [
        f"{name}={models / folder}" for name, folder in (("one", "adapter1"), ("two", "adapter2"))
    ]
    command = [
        *(
            sys.executable,
            "-m",
            "sglang.launch_server",
            "--port",
            str(port),
            "--log-level",
            "warning",
        ),
        *("--model-path", str(models / "dense"), "--served-model-name", "m", "--dtype", "float32"),
        *("--context-length", "256", "--chunked-prefill-size", "32", "--max-total-tokens", "2048"),
        *("--max-running-requests", "4", "--chat-template", "chatml", "--enable-memory-saver"),
        *("--enable-lora", "--lora-paths", *adapters, "--enable-custom-logit-processor"),
    ]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, env=environment(sglang_path), stdout=out, stderr=out, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        else:
            pytest.fail(f"the server does not come up:\n{log.read_text()}")
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(port: int, path: str, **body: Any) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def test_a_server(server: int, expected: dict[str, Any]) -> None:
    import tiny

    for prompt, tokens in zip(tiny.prompts(), expected["dense"], strict=True):
        params = {"temperature": 0.0, "max_new_tokens": 40, "ignore_eos": True}
        found = ask(server, "/generate", input_ids=prompt, sampling_params=params)
        assert found["output_ids"] == tokens
    said = ask(server, "/v1/completions", model="m:one", prompt="abc", max_tokens=5, temperature=0)
    assert said["usage"]["completion_tokens"] == 5
    said = ask(
        server, "/v1/chat/completions", model="m", max_tokens=5,
        messages=[{"role": "user", "content": "hi"}],
    )  # fmt: skip
    assert said["choices"][0]["message"]["role"] == "assistant"
    for action in ("snapshot", "compare", "checksum"):
        assert ask(server, "/weights_checker", action=action)["success"]


def test_no_request_ends_the_server(server: int, expected: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "hostile.py"), str(server)],
        env=environment(str(PROGRAMS), str(TINY), str(ROOT)),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1].removeprefix("REPORT "))
    assert found["first"] == found["last"] == expected["dense"][1] and found["wrong"] == []
    assert len(found["answers"]) > 150
    assert [one for one in found["answers"] if one[2] == 0] == []


# ------------------------------------------------------------------------------------- what is refused

REFUSED: dict[str, tuple[str, list[str], dict[str, str], str]] = {
    "another attention": (
        "dense",
        ["--attention-backend", "triton"],
        {},
        "--attention-backend triton: on flagos attention is the operator sglang::paged_attention",
    ),
    "n-grams": (
        "dense",
        ["--speculative-algorithm", "NGRAM"],
        {},
        "--speculative-algorithm NGRAM: SGLang itself has n-grams on its own devices alone; leave",
    ),
    "EAGLE": (
        "dense",
        ["--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", "x"],
        {},
        "--speculative-algorithm EAGLE: its kernels are Triton's and sgl_kernel's",
    ),
    "latent attention": ("latent", [], {}, "model: DeepseekV3ForCausalLM has multi-head latent"),
    "too many ranks": ("dense", ["--tp-size", "4"], {}, "4 ranks need 4 flagos devices, and there"),
    "no quantization of theirs": (
        "dense",
        ["--quantization", "awq"],
        {},
        "--quantization awq: flagos has no kernels for it; write fp8",
    ),
    "DP attention": (
        "dense",
        ["--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"],
        {"FLAGOS_HOST_DEVICES": "4"},
        "has not been tried on flagos",
    ),
    "no fence": (
        "dense",
        [],
        {"SGLANG_ENABLE_WAR_BARRIER": "0"},
        "SGLANG_ENABLE_WAR_BARRIER=0: without the fence",
    ),
    "a filter": (
        "dense",
        [],
        {"SGLANG_PLUGINS": "other"},
        "SGLANG_PLUGINS=other leaves its plugin `flagos` out",
    ),
}


@pytest.mark.parametrize(("model", "options", "variables", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_comes_before_the_server(
    sglang_path: str,
    models: Path,
    model: str,
    options: list[str],
    variables: dict[str, str],
    words: str,
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sglang.launch_server",
            "--model-path",
            str(models / model),
            *options,
        ],
        env=environment(sglang_path, **{"FLAGOS_HOST_DEVICES": "2", **variables}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 and words in done.stdout + done.stderr


def test_the_check(sglang_path: str, models: Path) -> None:
    def check(*options: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "flagos", "sglang", "check", "--json", *options],
            env=environment(sglang_path, FLAGOS_HOST_DEVICES="1"),
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, json.loads(done.stdout)

    status, found = check("--model-path", str(models / "dense"))
    assert (status, found["problems"]) == (0, [])
    assert found["serves"]["attention"] == "sglang::paged_attention -> reference.paged_attention"
    assert found["serves"]["graphs"] == "none"
    status, found = check(
        "--model-path", str(models / "dense"), "--enable-lmcache", "--lora-backend", "triton"
    )
    assert status == 1
    assert [one["option"] for one in found["problems"]] == [
        *("--enable-lmcache", "--lora-backend triton")
    ]
    status, found = check("--model-path", str(models / "dense"), "--max-lora-rank", "x")
    assert status == 1

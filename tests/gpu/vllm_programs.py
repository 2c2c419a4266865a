"""What vLLM can do, on flagos beside vLLM's own CUDA platform: the programs of the adapter's tests, bit for bit.

    VLLM_PATH=<folder> python -m tests.gpu.vllm_programs [--cases "PATTERN;PATTERN"] [--jobs N] [--seconds S]
        [--sides cuda,flagos] [--dtype TYPE] [--json FILE] [--logs FOLDER] [--list]

The folder is that of `tests.bench.gpu.vllm`. Each case runs on both sides, with tiny random models in bfloat16, several
cases at a time: LoRA, speculation, grammars, sampling, pooling, weights of integers and of 8 bits, experts, latent
attention, layers with states, images and sounds, preemption, graphs, Inductor, and two ranks where there are two
devices. What a program reports has to be the same on both sides, in every bit, without a fallback. Where Inductor
compiles, which fuses more on vLLM's own platform, and where that has kernels that flagos does not use (Marlin's
experts, LoRA on experts), the differences are told and do not count. What vLLM's own platform does not have (new
weights while it sleeps, KV transfer of flagos, heads of odd sizes) runs on flagos alone. "transformers" is how many
sequences of greedy tokens equal those of transformers on the CPU in float32, which bfloat16 need not reach, and
"behind" how far tokens are from the best. Exits with 1 if a case differs or fails.

`--sides flagos` runs flagos alone, also without the wheel's kernels; on a machine without a chip on the host vendor,
with `--dtype float32`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from adapters.torch.tests.launch import free_port
from tests.bench.gpu.vllm import ENVIRONMENT, LIBRARIES
from tests.gpu.cases import choose, compare, parser, place_on, reported, run_all

PROGRAMS = Path(__file__).resolve().parents[2] / "adapters" / "vllm" / "tests" / "programs"
_GRAPHS = {
    "enforce_eager": False,
    "compilation_config": {
        "mode": 0,
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16],
    },
}
# Graphs of the pieces between attention, without Inductor, and as they are captured.
_PIECES = {
    "enforce_eager": False,
    "compilation_config": {
        "mode": 3,
        "backend": "eager",
        "cudagraph_mode": "PIECEWISE",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64],
    },
}
_BROKEN = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
_COMPILED = {"enforce_eager": False, "compilation_config": {"cudagraph_capture_sizes": [1, 4, 8]}}


@dataclass(frozen=True)
class Case:
    """A program with the models' folder that it takes, options of `LLM`, and what else is different."""

    program: str
    model: str | None = "dense"  # None: a folder of its own, into which the program writes a model
    options: dict[str, Any] = field(default_factory=dict)
    given: bool = False  # whether the program takes options of its own behind the folder
    kind: str = ""  # what the program takes before the folder
    further: str = ""  # what it takes at the end: a "port", or a "file" of new weights
    sides: tuple[str, ...] = ("cuda", "flagos")
    theirs: dict[str, Any] = field(default_factory=dict)  # options of vLLM's own platform alone
    ranks: int = 1
    attention: str = "triton"
    variables: dict[str, str] = field(default_factory=dict)
    exact: bool = True
    # What vLLM's own platform reports otherwise by a fault of its own.
    faults: tuple[str, ...] = ()
    # What the preferred kernel declines, so that the next one serves.
    declined: tuple[str, ...] = ()


def _greedy(model: str = "dense", **options: Any) -> Case:
    return Case("greedy.py", model, options, given=True)


def _ranks(model: str, **options: Any) -> Case:
    return Case("greedy.py", model, options, given=True, ranks=2)


def _written(program: str, kind: str = "", options: Any = None, **different: Any) -> Case:
    return Case(program, None, options or {}, given=True, kind=kind, **different)


def _integers(kind: str, options: Any = None) -> Case:
    # Experts are Marlin's on vLLM's own platform, and Triton's on flagos.
    return _written("quantized.py", kind, options, exact=not kind.startswith("experts"))


def _media(kind: str, attention: str = "triton") -> Case:
    theirs = (
        {"mm_encoder_attn_backend": "TRITON_ATTN"} if attention == "triton, encoders too" else {}
    )
    return _written("media.py", kind, attention=attention, theirs=theirs)


def _delta(kind: str, options: Any = None, **different: Any) -> Case:
    # vLLM's own platform takes FlashInfer's kernel of prompts if nothing else is said, and flagos Triton's. In 0.26 a
    # prompt of one token begins there with the state that another request left.
    theirs = {"gdn_prefill_backend": "triton"}
    return _written(
        "hybrid.py", kind, options, theirs=theirs, faults=("again", "logprobs"), **different
    )


def _latent(heads: str, options: Any = None, **different: Any) -> Case:
    return _written("latent.py", heads, options, attention="latent", **different)


def _alone(program: str, model: str | None, **different: Any) -> Case:
    return Case(program, model, sides=("flagos",), **different)


CASES: dict[str, Case] = {
    "latent attention": _latent("deepseek"),
    "latent attention, graphs": _latent("deepseek", _GRAPHS),
    # FlashAttention 3 has no kernel for these sizes, and vLLM's own platform nothing else.
    "latent attention, odd sizes": _latent(
        "odd",
        sides=("flagos",),
        declined=("vllm::expanded_attention", "vllm::expanded_attention_to_merge"),
    ),
    "Qwen3-Next": _delta("qwen3_next"),
    "Qwen3-Next, graphs": _delta("qwen3_next", _GRAPHS),
    # vLLM's kernel does not compile for these sizes, and its own platform has nothing else.
    "Qwen3-Next, narrow values": _delta(
        "qwen3_next-narrow",
        sides=("flagos",),
        declined=("vllm::prepare_delta_rule",),
    ),
    "Mamba": _written("hybrid.py", "mamba"),
    "Mamba 2": _written("hybrid.py", "mamba2"),
    "Mamba 2, graphs": _written("hybrid.py", "mamba2", _GRAPHS),
    "Jamba": _written("hybrid.py", "jamba"),
    "sleep and new weights": _alone("sleep.py", "dense", given=True, further="file"),
    "sleep and new weights of experts": _alone("sleep.py", "experts", given=True, further="file"),
    "images of Qwen3-VL": _media("qwen3_vl"),
    "images of Qwen3-VL, Triton": _media("qwen3_vl", "triton, encoders too"),
    "images of LLaVA": _media("llava"),
    "sounds of Qwen2-Audio": _media("qwen2_audio"),
    "AWQ": _integers("awq"),
    "GPTQ": _integers("gptq"),
    "GPTQ of 8 bits": _integers("gptq8"),
    "GPTQ in an order": _integers("gptq-order"),
    "W4A16": _integers("w4a16"),
    "W4A16, graphs": _integers("w4a16", _GRAPHS),
    "W4A16 with zeros": _integers("w4a16-zeros"),
    "W8A16": _integers("w8a16"),
    "W8A8": _integers("w8a8"),
    "W8A8 with zeros": _integers("w8a8-zeros"),
    "experts, AWQ": _integers("experts-awq"),
    "experts, GPTQ": _integers("experts-gptq"),
    "experts, W4A16": _integers("experts-w4a16"),
    "experts, W8A8": _integers("experts-w8a8"),
    "adapters of experts": _written("adapted_experts.py", exact=False),
    "prompts of another engine": _alone(
        *("transfer.py", "dense"),
        given=True,
        further="port",
        ranks=2,
        variables={"PRODUCER_DEVICE": "1"},
    ),
    "kernels of these forms": _alone("forms.py", None),
    "replicas that share experts": _alone(
        "replicas.py", "experts", given=True, further="port", ranks=2
    ),
    "dense": _greedy(),
    "dense, float32": _greedy(dtype="float32"),
    "dense, graphs": _greedy(**_GRAPHS),
    "dense, pieces": _greedy(**_PIECES),
    "dense, pieces as captured": Case("greedy.py", "dense", _PIECES, given=True, variables=_BROKEN),
    "dense, compiled": Case("greedy.py", "dense", _COMPILED, given=True, exact=False),
    "dense, FlashAttention 3": Case("greedy.py", given=True, attention="flash_attention_3"),
    "dense, first runner": Case(
        "greedy.py", given=True, variables={"VLLM_USE_V2_MODEL_RUNNER": "0"}
    ),
    "dense, preempted": _greedy(num_gpu_blocks_override=17),
    "dense, one step ahead": _greedy(async_scheduling=True),
    "experts": _greedy("experts"),
    "experts, graphs": _greedy("experts", **_GRAPHS),
    "experts, pieces": _greedy("experts", **_PIECES),
    "experts, pieces as captured": Case(
        "greedy.py", "experts", _PIECES, given=True, variables=_BROKEN
    ),
    "experts, compiled": Case("greedy.py", "experts", _COMPILED, given=True, exact=False),
    "experts in groups": _greedy("grouped"),
    "features": Case("features.py"),
    "features, graphs": Case("features.py", options=_GRAPHS),
    "grammar": Case("grammar.py"),
    "adapters": Case("lora.py", "", given=True),
    "adapters, graphs": Case("lora.py", "", _GRAPHS, given=True),
    "adapters, pieces": Case("lora.py", "", _PIECES, given=True),
    "adapters, compiled": Case("lora.py", "", _COMPILED, given=True, exact=False),
    "an encoder and a decoder": Case("speech.py", ""),
    "speculation": Case("speculation.py"),
    "speculation, graphs": Case("speculation.py", options=_GRAPHS),
    "embeddings": Case("pooling.py"),
    "scores": Case("scores.py", given=True),
    "scores, fp8 weights, compiled": Case(
        "scores.py", options={"quantization": "fp8", **_COMPILED}, given=True, exact=False
    ),
    "scores, fp8 weights": Case("scores.py", options={"quantization": "fp8"}, given=True),
    "fp8 blocks": Case("blocks.py", "", given=True),
    "fp8 blocks, compiled": Case("blocks.py", "", _COMPILED, given=True, exact=False),
    "scores, fp8 cache, FlashAttention 3": Case(
        "scores.py",
        options={"kv_cache_dtype": "fp8"},
        given=True,
        attention="flash_attention_3",
    ),
    "scores, fp8 cache": Case("scores.py", options={"kv_cache_dtype": "fp8"}, given=True),
    "tensor parallel": _ranks("dense", tensor_parallel_size=2),
    "tensor parallel, graphs": _ranks("dense", tensor_parallel_size=2, **_GRAPHS),
    "tensor parallel, graphs, without peers' memory": _ranks(
        "dense", tensor_parallel_size=2, disable_custom_all_reduce=True, **_GRAPHS
    ),
    "tensor parallel, pieces": _ranks("dense", tensor_parallel_size=2, **_PIECES),
    "tensor parallel, compiled": Case(
        "greedy.py",
        "dense",
        {"tensor_parallel_size": 2, **_COMPILED},
        given=True,
        ranks=2,
        exact=False,
    ),
    "tensor parallel experts": _ranks("experts", tensor_parallel_size=2),
    "experts by rank": _ranks("experts", tensor_parallel_size=2, enable_expert_parallel=True),
    "pipeline parallel": _ranks("dense", pipeline_parallel_size=2),
}
# What vLLM's own platform is told, and the routes of flagos by which it has the same.
_BACKENDS = {
    "triton": "TRITON_ATTN",
    "triton, encoders too": "TRITON_ATTN",
    "flash_attention_3": "FLASH_ATTN",
    "latent": "TRITON_MLA",
}
_ROUTES = {
    "triton": ("triton.paged_attention",),
    "triton, encoders too": ("triton.paged_attention", "triton.expanded_attention"),
    "flash_attention_3": ("flash_attention_3.paged_attention",),
    "latent": (),
}


def run(case: Case, side: str, dtype: str, models: Path, device: int, log: Path, timeout: float) -> Any:  # fmt: skip
    """What one side reports. Raises RuntimeError with the end of its log."""
    # Half of the device has to be free at each start, which is not used: the caches have sizes of their own.
    options = {"dtype": dtype, "gpu_memory_utilization": 0.5, **case.options}
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(
            [os.environ["VLLM_PATH"], str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
        ),
        "VLLM_PLUGINS": "flagos" if side == "flagos" else "",
        "VLLM_CACHE_ROOT": str(models / f"cache-{log.stem}"),
        "OMP_NUM_THREADS": "2",
        **case.variables,
    }
    place_on(environment, case, device)
    if side == "flagos":
        config = models / f"{case.attention}.toml"
        environment["FLAGOS_CONFIG"] = str(config)
    else:
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        options |= {"attention_backend": _BACKENDS[case.attention], **case.theirs}
    environment["SERVING_OPTIONS"] = json.dumps(options)
    command = [sys.executable, str(PROGRAMS / case.program), *arguments_of(case, models, log)]
    return reported(command, environment, log, timeout)


def arguments_of(case: Case, models: Path, log: Path) -> list[str]:
    """What the program is given."""
    if case.model is None:
        folder = models / f"of-{log.stem}"
        folder.mkdir()
    else:
        folder = models / case.model
    last = {"port": str(free_port()), "file": str(models / f"{log.stem}.safetensors"), "": ""}
    given = [case.kind, str(folder), json.dumps({}) if case.given else "", last[case.further]]
    return [each for each in given if each]


def judge(name: str, reports: dict[str, Any], expected: dict[str, Any]) -> tuple[str, bool]:
    """A line about a case that ran, and whether it holds."""
    case = CASES[name]
    ours = reports["flagos"]
    line, different = compare(reports)
    fallbacks = {op: n for op, n in ours.get("fallbacks", {}).items() if op not in case.declined}
    if fallbacks:
        line += f"; fallbacks {fallbacks}"
    known = expected[case.model] if case.program == "greedy.py" else ours.get("expected")
    tokens = ours.get("tokens")
    if known and tokens and case.program != "speech.py":
        equal = sum(a == b for a, b in zip(tokens, known, strict=True))
        line += f"; transformers {equal} of {len(tokens)}"
    line += "".join(f"; {name} {ours[name]}" for name in ("behind", "differences") if name in ours)
    others = [one for one in different if one.partition(":")[0] not in case.faults]
    return line, not fallbacks and (not others or not case.exact)


def main() -> int:
    """Runs the cases. Returns the exit status."""
    assert __doc__ is not None
    arguments = parser("tests.gpu.vllm_programs", __doc__, "bfloat16").parse_args()
    torch.set_num_threads(4)  # of the tiny models' own answers: more threads wait for each other
    chosen = choose(arguments, CASES)
    folder, beside = Path(os.environ.get("VLLM_PATH", "")), "cuda" in arguments.sides
    absent = [name for name in LIBRARIES if not (folder / "vllm" / name).is_file()]
    if absent and beside:
        print(f"{folder}/vllm lacks {', '.join(absent)} of vLLM's own wheel for CUDA")
        return 1
    sys.path.insert(0, str(PROGRAMS))
    tiny = import_module("tiny")

    with tempfile.TemporaryDirectory() as models:
        place = Path(models) / "models"
        place.mkdir()
        tiny.write(place)
        for attention, kernels in _ROUTES.items():
            config = place / f"{attention}.toml"
            routes = {kernel.partition(".")[2]: kernel for kernel in kernels if beside}
            lines = [f'"vllm::{op}" = "impl:{kernel}"' for op, kernel in routes.items()]
            config.write_text("\n".join(["[ops]", *lines]))
            config.chmod(0o600)
        expected = json.loads((place / "expected.json").read_text())

        def one(name: str, side: str, device: int, log: Path) -> Any:
            return run(*(CASES[name], side, arguments.dtype, place, device, log), arguments.seconds)

        return run_all(
            *(chosen, CASES, arguments, arguments.logs or Path(models), one),
            lambda name, reports: judge(name, reports, expected),
        )


if __name__ == "__main__":
    sys.exit(main())

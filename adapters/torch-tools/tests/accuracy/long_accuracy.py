"""`flagos accuracy` over whole programs: wrong kernels are found, right ones are not, some programs are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .command import PROGRAM, SECONDS, Accuracy, causes
from .models import MODELS

pytestmark = pytest.mark.host

#: Operators whose kernels compute in float64 and round once: as right as native ones, with other roundings.
FORWARD = (
    "addmm mm bmm silu gelu tanh sigmoid _softmax native_layer_norm native_group_norm mean.dim convolution mul.Tensor "
    "add.Tensor"
)
BACKWARD = (
    "tanh_backward sigmoid_backward gelu_backward silu_backward _softmax_backward_data native_layer_norm_backward "
    "sum.dim_IntList"
)
FEW = ("--roundings", "1")


def found(report: dict[str, object], op: str) -> None:
    """The search named the operator alone, and its first call."""
    assert causes(report) == [[op]]  # type: ignore[arg-type]
    call = report["search"]["causes"][0]["call"]  # type: ignore[index]
    assert (call["kind"], call["op"], call["call"]) == ("differs", f"aten::{op}", 0)
    assert call["repro_status"] == 1


# --------------------------------------------------------------------------------- wrong kernels

SAMPLES = """
import os, torch, torch_fl, flagos
from torch.testing._internal.common_methods_invocations import op_db
import runpy, sys
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except SystemExit:
    pass
infos = [one for one in op_db if one.name == "nn.functional.silu" and torch.float32 in one.dtypes]
count = 0
for info in infos:
    for sample in info.sample_inputs("cpu", torch.float32):
        given = sample.input.to("flagos")
        assert torch.equal(info.op(given).cpu(), info.op(sample.input)), tuple(sample.input.shape)
        count += 1
print(count, flagos.counters()["aten::silu"]["calls"])
"""


def test_a_kernel_that_is_wrong_at_the_models_sizes_alone_is_found(accuracy: Accuracy) -> None:
    plant = {"PLANT": "sizes silu", "BEYOND": "4096", "MODEL": "decoder"}
    # The database's samples do not show it.
    ended = subprocess.run(
        [sys.executable, "-c", SAMPLES, str(PROGRAM)],
        env={**os.environ, "FLAGOS_VENDOR": "host", **plant, "MODEL": "mlp"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    samples, calls = map(int, ended.stdout.split())
    assert calls >= samples >= 3
    report = accuracy(status=1, KERNELS="addmm mm bmm _softmax native_layer_norm", **plant)
    assert report["verdict"] == "beyond"
    assert report["beyond"][0]["measure"] == "relative"
    found(report, "silu")
    assert report["search"]["causes"][0]["call"]["arguments"] == ["float32[4, 24, 128]"]


@pytest.mark.parametrize(
    ("model", "do", "op"),
    [("encoder", "infer", "addmm"), ("decoder", "train", "mm"), ("unet", "infer", "convolution")],
)
def test_a_thousandth_in_every_layer_is_found(
    accuracy: Accuracy, model: str, do: str, op: str
) -> None:
    right = "bmm _softmax native_layer_norm gelu native_group_norm"
    report = accuracy(*FEW, status=1, MODEL=model, DO=do, PLANT=f"layers {op}", KERNELS=right)
    assert report["verdict"] == "beyond"
    found(report, op)
    worst = {one["measure"]: one for one in report["judged"]}
    assert 1e-4 < worst["relative"]["value"] < 1e-1
    assert worst["relative"]["value"] > 10 * worst["relative"]["limit"]


def test_a_wide_multiple_finds_nothing(accuracy: Accuracy) -> None:
    variables = {"MODEL": "encoder", "PLANT": "layers addmm"}
    report = accuracy(*FEW, "--multiple", "1e6", status=0, **variables)
    assert report["verdict"] == "within" and report["search"] is None
    assert report["judged"][0]["value"] > 1e-4
    report = accuracy(*FEW, "--no-bisect", status=1, **variables)
    assert report["verdict"] == "beyond" and report["search"] is None


def test_a_wrong_gradient_is_found_by_the_losses(accuracy: Accuracy) -> None:
    # Off by the same factor everywhere it would be no error: AdamW takes no notice of a gradient's scale.
    plant = {"PLANT": "sizes tanh_backward", "BEYOND": "600"}
    report = accuracy(*FEW, "--only", "loss", status=1, DO="train", KERNELS="addmm", **plant)
    assert causes(report) == [["tanh_backward"]]
    # By torch's tolerances for one kernel these small gradients are equal: the call that is furthest off is named.
    call = report["search"]["causes"][0]["call"]
    assert (call["kind"], call["op"]) == ("rounding", "aten::tanh_backward")
    first = report["beyond"][0]
    assert (first["place"]["output"], first["measure"]) == ("loss", "scalar")
    assert first["place"]["call"] == 1  # the first step's loss knows no gradient


def test_tokens_that_are_chosen_otherwise_are_found(accuracy: Accuracy) -> None:
    report = accuracy(*FEW, status=1, MODEL="decoder", DO="generate", FLAW="token")
    found(report, "argmax")
    assert "Decoder, call 1: the model was given other tokens" in report["message"]
    assert report["outputs_apart"] > 0


# --------------------------------------------------------------------------------- right kernels


@pytest.mark.parametrize("model", MODELS)
def test_right_kernels_with_other_roundings_are_within(accuracy: Accuracy, model: str) -> None:
    """In use, and in training."""
    report = accuracy(
        "--no-bisect", status=0, MODEL=model, DO="infer train", KERNELS=f"{FORWARD} {BACKWARD}"
    )
    assert report["verdict"] == "within" and report["operators"]
    assert any(one["value"] > 0 for one in report["judged"])
    assert all(one["limit"] < 1e-2 for one in report["judged"] if one["measure"] == "relative")


def test_generation_by_right_kernels_is_within(accuracy: Accuracy) -> None:
    report = accuracy("--no-bisect", status=0, MODEL="decoder", DO="generate", KERNELS=FORWARD)
    assert report["verdict"] == "within" and report["tokens"] > 0


def test_identical_routes_differ_by_zero(accuracy: Accuracy) -> None:
    report = accuracy(*FEW, status=0, MODEL="decoder", DO="train")
    assert report["verdict"] == "equal" and not report["operators"]
    assert "in every bit: no operator was called by another route" in report["message"]
    assert all(one["value"] == 0.0 for one in report["judged"])
    assert any(one["largest"] for one in report["noise"])  # and native's own noise is not zero


# --------------------------------------------------------------------------- what is not a program


@pytest.mark.parametrize(
    ("flaw", "said", "fix"),
    [
        ("fails", "fails on native kernels (status 1 (no data))", "its output is in"),
        ("nothing", "yields nothing to compare", "torch.flagos.mark"),
    ],
)
def test_a_program_that_cannot_be_judged_is_named(
    accuracy: Accuracy, flaw: str, said: str, fix: str
) -> None:
    report = accuracy(status=1, FLAW=flaw)
    assert said in report["error"] and fix in report["hint"]


@pytest.mark.parametrize(
    ("model", "said"),
    [("mlp", "MLP, call 0: relative error"), ("decoder", "was given other tokens")],
)
def test_a_program_that_is_not_deterministic_is_named(
    accuracy: Accuracy, model: str, said: str
) -> None:
    report = accuracy(status=1, FLAW="random", MODEL=model)
    assert report["verdict"] == "not deterministic"
    assert "two runs of native kernels differ" in report["message"] and said in report["message"]
    assert len(report["progress"]) == 3  # nothing else was run


@pytest.mark.parametrize(
    ("flaw", "verdict", "said", "op"),
    [
        ("crash", "fails", "RuntimeError: no such configuration", "silu"),
        ("nan", "beyond", "Decoder, call 0: 1464 NaN of 5856 elements", "silu"),
        ("shape", "beyond", "kinds, call 0: int64[2] instead of int64[3]", "unique_consecutive"),
    ],
)
def test_flaws_are_named_and_searched(
    accuracy: Accuracy, flaw: str, verdict: str, said: str, op: str
) -> None:
    report = accuracy(*FEW, status=1, MODEL="decoder", FLAW=flaw)
    assert report["verdict"] == verdict and said in report["message"]
    assert causes(report) == [[op]]
    assert report["search"]["causes"][0]["call"]["call"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--score", "task"], "names no function"),
        (["--model", "here"], "--model and --text belong together"),
        (["--model", "here", "--text", "a"], "are a program of their own"),
    ],
)
def test_options_that_mean_nothing_are_named(
    accuracy: Accuracy, options: list[str], said: str
) -> None:
    assert said in accuracy(*options, status=1)["error"]


# ------------------------------------------------------------------------------- scores, and texts


def test_a_score_is_judged_by_natives_own(accuracy: Accuracy) -> None:
    (accuracy.folder / "task.py").write_text(
        "def energy(outputs): return float(outputs['MLP'][0].double().square().mean())\n"
    )
    options = (*FEW, "--no-bisect", "--only", "MLP", "--score", "task:energy")
    report = accuracy(*options, status=0, KERNELS="addmm gelu")
    scores = report["score"]
    assert scores["native"] == pytest.approx(scores["routed"], rel=1e-5)
    report = accuracy(*options, status=1, PLANT="layers addmm")
    (score,) = [one for one in report["beyond"] if one["measure"] == "score"]
    assert score["value"] == pytest.approx(
        abs(report["score"]["routed"] - report["score"]["native"])
    )
    report = accuracy(*options, "--score-within", "1.0", status=1, PLANT="layers addmm")
    assert "score" not in [one["measure"] for one in report["beyond"]]


def test_a_model_of_transformers_reads_a_text(accuracy: Accuracy) -> None:
    pytest.importorskip("transformers")
    made = subprocess.run(
        [sys.executable, "-c", _MODEL],
        cwd=accuracy.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    options = ("--no-bisect", "--model", "model", "--text", "text.txt", "--tokens", "40")
    report = accuracy(*FEW, *options, status=0, program=[], FLAGOS_OP_mm="cpu")
    assert report["verdict"] == "equal"
    assert report["tokens"] == 40
    assert [one["value"] for one in report["judged"] if one["measure"] == "perplexity"] == [0.0]
    report = accuracy("--model", "model", "--text", "no.txt", status=1, program=[])
    assert report["error"] == "no.txt is no file"
    report = accuracy("--model", ".", "--text", "text.txt", status=1, program=[])
    assert "it has no config.json" in report["error"]


_MODEL = """
from pathlib import Path
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

words = "a gate judges what the model yields and not what it was meant to".split()
tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["?", *words])}, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained("model")
Qwen3ForCausalLM(Qwen3Config(
    vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=16,
)).save_pretrained("model")
Path("text.txt").write_text(" ".join(words * 5))
"""


def test_a_gate_goes_on_from_its_state(accuracy: Accuracy) -> None:
    options = (*FEW, "--no-bisect", "--state", "state", "--max-runs")
    report = accuracy(*options, "3", status=1, KERNELS="addmm")
    assert "no answer in 3 runs" in report["error"]
    report = accuracy(*options, "9", status=0, KERNELS="addmm")
    assert sum("(before)" in line for line in report["progress"]) == 3
    state = json.loads((Path(accuracy.folder) / "state" / "search.json").read_text())
    assert len(state["runs"]) == 6

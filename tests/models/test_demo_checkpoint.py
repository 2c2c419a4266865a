"""`flagos demo --model FOLDER`, on a tiny checkpoint that transformers saved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")
from torch_fl_cli.demo import main

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One short run."""
    command = [sys.executable, "-m", "torch_fl_cli.demo", "--model", str(folder), "--json"]
    command += ["--steps", "3", "--tokens", "8", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 with random weights in bfloat16, and a tokenizer of bytes."""
    import torch

    folder = tmp_path_factory.mktemp("checkpoint")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(["<end>", *alphabet])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.save_pretrained(folder)
    config = transformers.Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.host  # elsewhere the losses are compared within a tolerance
def test_a_checkpoint_writes_and_learns_as_on_the_cpu(checkpoint: Path) -> None:
    done = demo(checkpoint)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["ok"] and report["comparison"]["identical"]
    assert report["losses"] == report["cpu_losses"] and report["losses"][-1] < report["losses"][0]
    assert len(report["losses"]) == 3 and report["text"]
    assert report["plan"]["calls"] > 100 and report["plan"]["fallbacks"] == 0


@pytest.mark.slow
def test_a_weight_that_differs_is_noticed(checkpoint: Path) -> None:
    done = demo(checkpoint, "--perturb")
    assert done.returncode == 1
    assert not json.loads(done.stdout)["comparison"]["parameters_equal"]


def without(checkpoint: Path, folder: Path, *names: str) -> Path:
    """A copy of the checkpoint that lacks these files."""
    folder.mkdir()
    for file in checkpoint.iterdir():
        if file.name not in names:
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_folder_that_is_no_checkpoint_is_told(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = without(checkpoint, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"not weights")
    weightless = without(checkpoint, tmp_path / "weightless", "model.safetensors")
    cases = [
        (tmp_path / "absent", f"{tmp_path / 'absent'} is no folder"),
        (tmp_path, "has no config.json"),
        (weightless, f"{weightless} has no weights"),
        (broken, f"the model of {broken} cannot be loaded"),
    ]
    for folder, complaint in cases:
        assert main(["--model", str(folder)]) == 1
        result = capsys.readouterr().err
        assert "flagos demo: " in result and complaint in result


def test_a_checkpoint_without_some_weights_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file, save_file

    folder = without(checkpoint, tmp_path / "partial")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert main(["--model", str(folder)]) == 1
    assert "1 weights are missing, such as model.norm.weight" in capsys.readouterr().err

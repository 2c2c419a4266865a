"""Libraries that know devices by a list of names find flagos too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import flagos

safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A file of safetensors with `a` = 0…5 and `b`, halves."""
    file = tmp_path / "x.safetensors"
    safetensors.save_file({"a": torch.arange(6.0), "b": torch.ones(2, 2).half()}, file)
    return file


@pytest.mark.parametrize("device", ["flagos", "flagos:0", torch.device("flagos", 0)])
def test_safetensors_load_straight_to_the_device(checkpoint: Path, device: object) -> None:
    loaded = safetensors.load_file(checkpoint, device=device)
    assert {tensor.device for tensor in loaded.values()} == {torch.device("flagos:0")}
    assert loaded["a"].tolist() == [0, 1, 2, 3, 4, 5]
    assert loaded["b"].dtype == torch.float16


def test_safe_open_reads_tensors_and_slices(checkpoint: Path, two_devices: None) -> None:
    from safetensors import safe_open

    with safe_open(checkpoint, framework="pt", device="flagos:1") as opened:
        assert opened.get_tensor("a").device == torch.device("flagos:1")
        part = opened.get_slice("a")[2:4]
        assert part.device == torch.device("flagos:1") and part.tolist() == [2, 3]
    with torch.flagos.device(1), safe_open(checkpoint, "pt", "flagos") as opened:
        assert opened.get_tensor("b").device == torch.device("flagos:1")


def test_safetensors_keep_other_devices_and_their_errors(checkpoint: Path) -> None:
    import safetensors as package

    assert isinstance(package.safe_open(checkpoint, "pt"), package.safe_open)
    assert not isinstance(checkpoint, package.safe_open)
    assert safetensors.load_file(checkpoint)["a"].device.type == "cpu"
    with pytest.raises(Exception, match="invalid"):
        safetensors.load_file(checkpoint, device="flagos2:0")
    with pytest.raises(RuntimeError, match="ordinal"):
        safetensors.load_file(checkpoint, device="flagos:99")


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "import torch, safetensors.torch",
        "import safetensors.torch, torch",
        "import safetensors; import torch, safetensors.torch",
        "import importlib.util, torch; importlib.util.find_spec('safetensors'); import safetensors.torch",
    ],
)
def test_the_order_of_imports_does_not_matter(checkpoint: Path, run_python, first: str) -> None:
    run_python(
        f"""
        {first}
        loaded = safetensors.torch.load_file({str(checkpoint)!r}, device="flagos")
        assert loaded["a"].device.type == "flagos"
        assert safetensors.__spec__.loader is safetensors.__loader__
        """,
        fresh=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", ["accelerate", "transformers, accelerate", "torch, accelerate"])
def test_accelerate_knows_the_device_whoever_is_imported_first(run_python, first: str) -> None:
    """accelerate imports torch, and so us, in the middle of its own import."""
    pytest.importorskip("accelerate")
    script = f"""
    import {first}
    from accelerate import state
    print(accelerate.Accelerator().device, state.PartialState._prepare_backend.__module__)
    """
    done = run_python(script, fresh=True, ACCELERATE_TORCH_DEVICE="flagos")
    assert done.stdout.split() == ["flagos:0", "torch_fl.integrations.accelerate"]


def test_registering_after_safetensors_completes_it(checkpoint: Path, run_python) -> None:
    run_python(
        f"""
        import safetensors.torch
        import torch_fl
        loaded = safetensors.torch.load_file({str(checkpoint)!r}, device="flagos")
        assert loaded["a"].device.type == "flagos"
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_a_library_that_cannot_be_completed_is_imported_with_a_warning(
    tmp_path: Path, run_python
) -> None:
    (tmp_path / "safetensors.py").write_text("version = 'another'")
    report = run_python(
        """
        import torch
        import safetensors
        assert safetensors.version == "another"
        print(torch.ones(2, device="flagos").sum().item())
        """,
        fresh=True,
        PYTHONPATH=str(tmp_path),
    )
    assert report.stdout.strip() == "2.0"
    assert "RuntimeWarning: safetensors was imported as it is, without flagos" in report.stderr


def test_the_device_imports_no_library(run_python) -> None:
    run_python(
        """
        import sys, torch
        torch.ones(2, device="flagos").sum().item()
        assert not {"safetensors", "transformers", "accelerate"} & sys.modules.keys()
        """,
        fresh=True,
    )


def tiny_qwen() -> torch.nn.Module:
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=128,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )


@pytest.fixture
def accelerate_on(monkeypatch: pytest.MonkeyPatch) -> object:
    """Chooses accelerate's device for the rest of the test: a function of its name, None for none."""
    state = pytest.importorskip("accelerate.state", reason="accelerate is not installed")

    def choose(device: str | None) -> None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        if device is None:
            monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
        else:
            monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", device)

    yield choose
    state.AcceleratorState._reset_state(reset_partial_state=True)


def test_accelerate_and_deepspeed_take_one_device(
    accelerate_on, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerate = pytest.importorskip("accelerate")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for other in (None, "cpu"):
        accelerate_on("flagos")
        if other is None:
            monkeypatch.delenv("DS_ACCELERATOR", raising=False)
        else:
            monkeypatch.setenv("DS_ACCELERATOR", other)
        with pytest.raises(flagos.UnsupportedError, match="Set DS_ACCELERATOR=flagos, too"):
            accelerate.PartialState()


def trained(folder: Path, **options: object) -> tuple[list[float], torch.nn.Module]:
    """Losses of a short run of transformers.Trainer, and the model it leaves."""
    drawn = torch.Generator().manual_seed(1)
    rows = [torch.randint(256, (16,), generator=drawn) for _ in range(16)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=4,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **options,
    )
    arguments._n_gpu = 1  # of several CUDA devices the Trainer would make a DataParallel
    model = tiny_qwen()
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], model


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
def test_the_trainer_computes_what_it_does_on_the_native_device(
    accelerate_on, tmp_path: Path, bf16: bool, native: str
) -> None:
    accelerate_on("flagos")
    losses, model = trained(tmp_path, bf16=bf16)
    assert {p.device for p in model.parameters()} == {torch.device("flagos:0")}
    accelerate_on(None)
    expected, reference = trained(tmp_path, bf16=bf16, use_cpu=native == "cpu")
    assert {p.device.type for p in reference.parameters()} == {native}
    assert len(losses) == 4
    assert losses == expected
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(ours.cpu(), theirs.cpu())


def test_the_trainer_takes_the_device_with_the_index(
    accelerate_on, tmp_path: Path, two_devices: None
) -> None:
    accelerate_on("flagos:1")
    try:
        _, model = trained(tmp_path)
        assert {p.device for p in model.parameters()} == {torch.device("flagos:1")}
        assert torch.flagos.current_device() == 1
    finally:
        torch.flagos.set_device(0)


def test_without_the_variable_nothing_changes(accelerate_on, tmp_path: Path) -> None:
    accelerate_on(None)
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[])
    assert arguments.device.type != "flagos"
    accelerate_on("flagos")
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    assert arguments.device.type == "cpu"


def test_accelerator_prepares_for_the_chosen_device(accelerate_on) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerate_on("flagos")
    accelerator = accelerate.Accelerator(mixed_precision="bf16")
    assert accelerator.device.type == accelerate.PartialState().device.type == "flagos"
    model = torch.nn.Linear(8, 1)
    rows = torch.utils.data.DataLoader(torch.arange(64.0).view(8, 8) / 64, batch_size=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
    losses = []
    for _ in range(5):
        for batch in rows:
            assert batch.device.type == "flagos"
            with accelerator.autocast():
                product = model.weight @ batch.t()
            assert product.dtype == torch.bfloat16
            loss = (model(batch) - 1).square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert accelerator.gather(loss.detach()).device.type == "flagos"


@pytest.mark.parametrize("device_map", ["flagos", "flagos:0", {"": "flagos:0"}])
def test_checkpoints_of_transformers_load_onto_the_device(
    tmp_path: Path, device_map: object
) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")  # device_map needs it
    model = tiny_qwen()
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=device_map)
    assert {p.device for p in loaded.parameters()} == {torch.device("flagos:0")}
    for ours, theirs in zip(loaded.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_pipelines_run_on_the_device(tmp_path: Path, native: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(256)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w1")
    written = []
    for device in ("flagos", native):
        pipe = transformers.pipeline(
            "text-generation", model=tiny_qwen(), tokenizer=tokenizer, device=device
        )
        assert pipe.device.type == pipe.model.device.type == device
        written.append(pipe("w3 w4 w5", max_new_tokens=8, do_sample=False))
    assert written[0] == written[1]
    assert len(written[0][0]["generated_text"].split()) > 3

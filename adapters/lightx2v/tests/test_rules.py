"""The ready configurations, and the check of anybody's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagos.cli import run
from lightx2v_fl import cli, fields, rules, tables

READY = cli.ready()
BASE: dict[str, Any] = json.loads(READY["wan_t2v_bf16"])


def problems(changed: dict[str, Any], **options: Any) -> list[str]:
    config = {**BASE, **changed}
    config = {name: value for name, value in config.items() if value is not ...}
    found = rules.check(
        config, **{"model_cls": "wan2.1", "task": "t2v", "device": "flagos", **options}
    )
    return [str(problem) for problem in found]


@pytest.mark.parametrize("name", READY)
def test_ready_configurations_pass(name: str) -> None:
    task = "i2v" if "i2v" in name else "t2v"
    assert rules.check_text(READY[name], model_cls="wan2.1", task=task, device="flagos") == []
    assert READY[name] == json.dumps(json.loads(READY[name]), indent=2) + "\n"


@pytest.mark.parametrize("name", READY)
def test_ready_configurations_set_every_kernel(name: str) -> None:
    config = json.loads(READY[name])
    for field in ("self_attn_1_type", "cross_attn_1_type", "cross_attn_2_type", "rms_norm_type",
                  "layer_norm_type", "rope_type", "modulate_type"):  # fmt: skip
        assert config[field] == fields.CHOICES[field].ours
    assert config["dit_quantized"] is True
    assert config["dit_quant_scheme"] in (tables.LINEAR, tables.FP8_LINEAR, tables.INT8_LINEAR)


def test_there_is_one_for_each_way_to_run() -> None:
    configs = [json.loads(text) for text in READY.values()]
    sizes = {(p.get("cfg_p_size", 1) * p.get("seq_p_size", 1) * p.get("tensor_p_size", 1))
             for p in (c.get("parallel", {}) for c in configs)}  # fmt: skip
    assert sizes == {1, 2, 4}
    assert {c["dit_quant_scheme"] for c in configs} == {"flagos", "flagos-fp8", "flagos-int8"}


@pytest.mark.parametrize(
    ("changed", "report"),
    [
        ({"rms_norm_type": ...}, "rms_norm_type: it is missing, and LightX2V's default 'sgl-kernel'"),
        ({"self_attn_1_type": ...}, "self_attn_1_type: it is missing; write 'flagos_flash_attn'"),
        ({"infer_steps": ...}, "infer_steps: it is missing, and wan2.1 needs it"),
        ({"target_width": ...}, "target_width: it is missing"),
        ({"rope_type": "flagos_rop"}, "did you mean 'flagos_rope'?"),
        ({"rope_type": "flashinfer_rope"}, "needs tensors of the chip's own device; write 'flagos_rope'"),
        ({"self_atn_1_type": 1, "self_attn_1_type": ...}, "did you mean self_attn_1_type?"),
        ({"infer_steps": "50"}, 'infer_steps: "50" is wrong; write a whole number'),
        ({"infer_steps": True}, "infer_steps: true is wrong; write a whole number"),
        ({"cpu_offload": "true"}, 'cpu_offload: "true" is wrong; write true or false'),
        ({"cpu_offload": True, "offload_granularity": "phases"}, "did you mean 'phase'?"),
        ({"lazy_load": True}, "lazy_load: it needs cpu_offload"),
        ({"t5_quantized": True, "t5_quant_scheme": "fp8-sgl"}, "false, and t5_cpu_offload: true"),
        ({"dit_quantized": False}, "dit_quantized: LightX2V takes dit_quant_scheme 'flagos' only with it"),
        ({"dit_quant_scheme": ...}, "dit_quant_scheme: it is missing beside dit_quantized"),
        ({"lora_configs": [{"path": "x"}]}, "lora_dynamic_apply: LightX2V does not merge a LoRA"),
        ({"lora_configs": ["x"], "lora_dynamic_apply": True}, 'lora_configs: "x" names no file; write'),
        (
            {"lora_configs": [{"path": "x", "strength": "1"}], "lora_dynamic_apply": True},
            "the strength '1' of x is wrong; write a number",
        ),
        ({"infer_steps": 0}, "infer_steps: 0 is wrong; write 1 or more"),
        ({"parallel": {"seq_p_sise": 2}}, "parallel.seq_p_sise: there is no such field; did you mean"),
        ({"parallel": {"seq_p_size": "2"}}, 'parallel.seq_p_size: "2" is wrong'),
        ({"parallel": {"seq_p_attn_type": "rings"}}, "did you mean 'ring'?"),
        ({"parallel": {"cfg_p_size": 4}}, "parallel.cfg_p_size: there are two passes to share"),
        ({"parallel": {"seq_p_size": 5}, "num_heads": 12}, "12 heads cannot be shared by 5 ranks"),
        ({"parallel": {"seq_p_size": 2, "seq_p_fp8_comm": True}}, "CUDA kernels of other packages"),
        ({"parallel": {"seq_p_size": 2}, "load_from_rank0": True}, "load_from_rank0: LightX2V hands"),
        ({"parallel": [2]}, "parallel: [2] is wrong; write an object"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_what_to_write(changed: dict[str, Any], report: str) -> None:
    found = problems(changed)
    assert any(report in problem for problem in found), found
    assert len(found) == 1


def test_several_mistakes_are_told_at_once() -> None:
    assert len(problems({"rope_type": ..., "infer_steps": 0.5, "modulate_type": "triton"})) == 3


def test_heads_need_not_be_shared_by_a_ring() -> None:
    assert (
        problems({"parallel": {"seq_p_size": 5, "seq_p_attn_type": "ring"}, "num_heads": 12}) == []
    )


def test_ranks_that_were_started_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    (found,) = problems({"parallel": {"seq_p_size": 2}})
    assert "is 2, but 4 ranks were started; start torchrun --nproc_per_node=2" in found
    (found,) = problems({})
    assert "parallel: it is missing, but 4 ranks were started" in found


def test_a_lora_must_be_there_when_a_program_starts(tmp_path: Path) -> None:
    lora = tmp_path / "lora.safetensors"
    config = json.loads(READY["wan_t2v_lora"]) | {"lora_configs": [{"path": str(lora)}]}
    config |= {"model_cls": "wan2.1", "task": "t2v"}
    with pytest.raises(rules.ConfigurationError, match=f"lora_configs: there is no file {lora}"):
        rules.require_valid(config)
    lora.touch()
    rules.require_valid(config)


def test_the_chips_own_device_takes_its_own_kernels() -> None:
    assert problems({"rope_type": "flashinfer_rope", "rms_norm_type": ...}, device="cuda") == []


def test_the_cpu_takes_weights_for_offloaded_ones() -> None:
    assert "cpu_offload: on the device 'cpu'" in problems({}, device="cpu")[0]
    offloaded = {"cpu_offload": True, "offload_granularity": "model"}
    assert problems(offloaded, device="cpu") == []


def test_other_models_are_not_judged_by_the_fields_of_wan() -> None:
    assert (
        rules.check({"attn_type": "torch_sdpa"}, model_cls="hunyuan_video_1.5", device="flagos")
        == []
    )


def test_no_two_fields_that_are_judged_are_slips_of_each_other() -> None:
    everything = {**dict.fromkeys(fields.KINDS), **dict.fromkeys(fields.CHOICES)}
    for name in everything:
        without = {other: None for other in everything if other != name}
        assert not list(rules._slips(without, tuple(everything), ""))


class TestCommand:
    """`flagos lightx2v`."""

    def test_lists(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["lightx2v", "configs"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(READY) + 1
        (row,) = [line for line in lines if line.startswith("wan_t2v_4gpu_cfg_ulysses")]
        assert row.split()[1] == "4"

    def test_copies(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["lightx2v", "configs", "wan_t2v_fp8", "--to", str(tmp_path / "mine")]
        assert run(command) == 0
        copied = tmp_path / "mine" / "wan_t2v_fp8.json"
        assert copied.read_text() == READY["wan_t2v_fp8"]
        assert run(command) == 1
        assert "give --force to overwrite" in capsys.readouterr().err
        assert run([*command, "--force"]) == 0
        assert run(["lightx2v", "configs", "wan_t2v_fp"]) == 1
        assert "did you mean wan_t2v_fp8?" in capsys.readouterr().err

    def test_checks(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        good, bad = tmp_path / "good.json", tmp_path / "bad.json"
        good.write_text(READY["wan_t2v_bf16"])
        bad.write_text(READY["wan_t2v_bf16"].replace("flagos_rope", "flagos_ropes"))
        assert run(["lightx2v", "check", str(good)]) == 0
        assert run(["lightx2v", "check", str(good), str(bad)]) == 1
        line = 1 + READY["wan_t2v_bf16"].splitlines().index('  "rope_type": "flagos_rope",')
        assert f"{bad}:{line}: rope_type: " in capsys.readouterr().out
        assert run(["lightx2v", "check", "--json", str(bad)]) == 1
        (problem,) = json.loads(capsys.readouterr().out)[str(bad)]
        assert problem["field"] == "rope_type" and problem["line"] == line

    def test_what_is_no_configuration(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "c.json"
        file.write_text('{"infer_steps": 4,}')
        assert run(["lightx2v", "check", str(file)]) == 1
        assert "line 1: this is no JSON" in capsys.readouterr().out
        file.write_text(READY["wan_t2v_bf16"].replace("{", '{"rope_type": "torch_rope",', 1))
        assert run(["lightx2v", "check", str(file)]) == 1
        assert "rope_type: it is there twice" in capsys.readouterr().out
        assert run(["lightx2v", "check", str(tmp_path / "none.json")]) == 1
        assert "cannot be read" in capsys.readouterr().err
        file.write_bytes(b"\xff\xfe{")
        assert run(["lightx2v", "check", str(file)]) == 1
        assert "it is no text in UTF-8" in capsys.readouterr().err

    def test_a_device_that_is_none(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run(["lightx2v", "check", "--device", "cudo", "x.json"]) == 1
        assert "error: cudo is no device" in capsys.readouterr().err
        monkeypatch.setenv("FLAGOS_LIGHTX2V_DEVICE", "cudo")
        assert run(["lightx2v", "check", "x.json"]) == 1
        report = capsys.readouterr().err
        assert (
            "FLAGOS_LIGHTX2V_DEVICE=cudo is no device" in report and "did you mean 'cuda'" in report
        )


def test_what_is_nested_too_deeply_is_told() -> None:
    text = '{"parallel": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (problem,) = rules.check_text(text)
    assert "nested too deeply" in str(problem)

"""LightX2V itself, from the checkout in LIGHTX2V_PATH: a tiny Wan DiT and a Wan VAE, random weights.

The models run in processes of their own, several jobs each: importing LightX2V takes longer than they do.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import socket
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

from lightx2v_fl import fields, rules, tables

pytestmark = [pytest.mark.lightx2v, pytest.mark.host]

HERE = Path(__file__).parent
PROGRAM = HERE / "tiny_wan.py"

_spec = spec_from_file_location("tiny_wan", PROGRAM)
assert _spec is not None and _spec.loader is not None
tiny_wan = module_from_spec(_spec)
_spec.loader.exec_module(tiny_wan)
OURS, TORCHS = tiny_wan.TYPES_OF_OURS, tiny_wan.TYPES_OF_TORCH

#: Relative difference (L2) of what the model predicts, from the same in bfloat16.
KERNELS = 0.06  # other kernels for the same formula
QUALITY = {"fp8": 0.14, "int8": 0.06}  # seen: 0.115 and 0.042
MISTAKE = 0.25  # seen: 0.42 for a wrong layout, 0.31 for norms left out

REFERENCES = {f"lightx2v::{name}": "reference"
              for name in ("attention", "rms_norm", "layer_norm", "rope", "linear")}  # fmt: skip


def checkout() -> Path:
    return Path(os.environ["LIGHTX2V_PATH"])


def offload(granularity: str, **more: Any) -> dict[str, Any]:
    return {"cpu_offload": True, "offload_granularity": granularity, **more}


def start(jobs: list[dict[str, Any]], **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PLATFORM": "flagos", **variables}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(checkout()), os.environ.get("PYTHONPATH", "")))
    )
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(jobs)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def reports(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err[-4000:]
    lines = [line for line in out.splitlines() if line.startswith("REPORT ")]
    return [json.loads(line.removeprefix("REPORT ")) for line in lines]


class Results:
    """The prediction and the report of each job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: dict[str, dict[str, Any]] = {}

    def job(self, name: str, config: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "checkpoint": str(self.folder / "checkpoint"),
            "out": str(self.folder / f"{name}.pt"),
            "config": config,
            **more,
        }

    def run(self, jobs: dict[str, dict[str, Any]], **variables: str) -> None:
        found = reports(start(list(jobs.values()), **variables))
        self.reports.update(zip(jobs, found, strict=True))

    def __getitem__(self, name: str) -> torch.Tensor:
        result: torch.Tensor = torch.load(self.folder / f"{name}.pt")
        return result

    def error(self, name: str, reference: str = "flagos") -> float:
        """The relative difference of the predictions of all steps; the latents, which come last, hardly show them."""
        expected = self[reference][:-1]
        return float((self[name][:-1] - expected).norm() / expected.norm())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every job that one process can do."""
    found = Results(tmp_path_factory.mktemp("wan"))
    job = found.job
    lora = str(found.folder / "lora.safetensors")
    tiny_wan.write_lora(tiny_wan.DEFAULTS, Path(lora))
    found.run(
        {
            "cpu": job("cpu", TORCHS),
            "cpu_vae": job("cpu_vae", {}, vae=True),
            "cpu_text": job("cpu_text", {}, text="plain"),
        },
        FLAGOS_LIGHTX2V_DEVICE="cpu",
    )
    ours = {
        "flagos": job("flagos", OURS),
        "vae": job("vae", {}, vae=True),
        "text": job("text", {}, text="plain"),
        "text_offload": job("text_offload", {}, text="offload"),
        "fused": job("fused", OURS, math_sdpa=False),
        "reference": job("reference", OURS, route=REFERENCES),
        "wrong_rope": job("wrong_rope", OURS, fault="wrong_rope"),
        "no_rms_norm": job("no_rms_norm", OURS, fault="no_rms_norm"),
        "lora": job("lora", OURS, lora=lora),
    }
    for name in ("block", "phase", "model"):
        ours[name] = job(name, {**OURS, **offload(name)})
    for name in ("block", "phase"):
        ours[f"lazy_{name}"] = job(f"lazy_{name}", {**OURS, **offload(name, lazy_load=True)})
    for bits in ("fp8", "int8"):
        config = {**OURS, "dit_quant_scheme": f"flagos-{bits}"}
        ours[bits] = job(bits, config)
        ours[f"{bits}_block"] = job(f"{bits}_block", {**config, **offload("block")})
    ours["lora_block"] = job("lora_block", {**OURS, **offload("block")}, lora=lora)
    found.run(ours)
    return found


def test_the_dit_is_bit_identical_with_the_cpu(results: Results) -> None:
    assert results.reports["cpu"]["device"] == "cpu"
    assert results.reports["flagos"]["device"] == "flagos"
    assert torch.equal(results["flagos"], results["cpu"])
    assert results["flagos"].std() > 0.5


def test_the_vae_is_bit_identical_with_the_cpu(results: Results) -> None:
    assert torch.equal(results["vae"], results["cpu_vae"])
    assert results["vae"].shape == (1, 3, 5, 32, 32) and results["vae"].std() > 0


def test_the_text_encoder_is_bit_identical_with_the_cpu(results: Results) -> None:
    assert results.reports["text"] | {"device": "cpu"} == results.reports["cpu_text"]
    assert torch.equal(results["text"], results["cpu_text"])
    assert results["text"].shape == (4, 64) and results["text"].std() > 0.5


def test_an_offloaded_text_encoder_needs_no_kernels_for_cuda(results: Results) -> None:
    """Its norms are named `sgl-kernel` in LightX2V; two in each of two blocks are ours."""
    assert results.reports["text_offload"]["providers"] == {
        "lightx2v::rms_norm": {"torch.rms_norm": 4}
    }
    assert results.error("text_offload", "text") <= 0.02


def test_every_operator_was_served_by_the_plan(results: Results) -> None:
    # Three steps of two passes through two blocks: 2 attentions, 10 linear layers, 4 RMS norms, 1 rope;
    # 3 layer norms a block and one behind the last.
    assert results.reports["flagos"]["providers"] == {
        "lightx2v::attention": {"torch.attention": 24},
        "lightx2v::layer_norm": {"torch.layer_norm": 42},
        "lightx2v::linear": {"torch.linear": 120},
        "lightx2v::rms_norm": {"torch.rms_norm": 48},
        "lightx2v::rope": {"torch.rope": 12},
    }
    assert {p for served in results.reports["reference"]["providers"].values() for p in served} == {
        f"reference.{op.removeprefix('lightx2v::')}" for op in REFERENCES
    }
    assert not any(report.get("fallbacks") for report in results.reports.values())


@pytest.mark.parametrize("name", ["fused", "reference"])
def test_other_kernels_are_close(results: Results, name: str) -> None:
    assert 0 < results.error(name) <= KERNELS


@pytest.mark.parametrize("name", ["wrong_rope", "no_rms_norm"])
def test_a_mistake_is_far(results: Results, name: str) -> None:
    assert results.error(name) > MISTAKE


@pytest.mark.parametrize("name", ["block", "phase", "model", "lazy_block", "lazy_phase"])
def test_offloaded_weights_change_nothing(results: Results, name: str) -> None:
    assert torch.equal(results[name], results["flagos"])


@pytest.mark.parametrize("bits", ["fp8", "int8"])
def test_eight_bits(results: Results, bits: str) -> None:
    assert 0.01 < results.error(bits) <= QUALITY[bits]
    assert torch.equal(results[f"{bits}_block"], results[bits])
    served = results.reports[bits]["providers"][f"lightx2v::{bits}_linear"]
    assert served == {"reference.fp8_linear" if bits == "fp8" else "torch.int8_linear": 120}


def test_lora(results: Results) -> None:
    assert results.error("lora") > 0.05
    assert torch.equal(results["lora_block"], results["lora"])


RANKS = {
    "cfg": {"cfg_p_size": 2},
    "ulysses": {"seq_p_size": 2},
    "ulysses_fused": {"seq_p_size": 2, "seq_p_tensor_fusion": True},
    "ring": {"seq_p_size": 2, "seq_p_attn_type": "ring"},
    "tensor": {"tensor_p_size": 2},
}


@pytest.mark.parametrize("device", ["cpu", "flagos"])
@pytest.mark.parametrize("name", RANKS)
def test_two_ranks_compute_what_one_does(results: Results, name: str, device: str) -> None:
    if device == "flagos":
        pytest.importorskip("torch_fl.distributed", reason="this torch_fl has no process group")
    more = {"tp_rms_norm_type": "flagos_rms_norm"} if name == "tensor" else {}
    key = f"{name}_{device}"
    jobs = [results.job(key, {**OURS, **more, "parallel": RANKS[name]})]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [
        start(
            jobs,
            FLAGOS_LIGHTX2V_DEVICE=device,
            FLAGOS_HOST_DEVICES="2",
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE="2",
            LOCAL_WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        (results.reports[key],) = reports(rank)
    if name in ("ring", "tensor"):  # sums in another order
        assert 0 < results.error(key) <= KERNELS
    else:
        assert torch.equal(results[key], results["flagos"])
    if name == "ring":
        assert results.reports[key]["providers"]["lightx2v::attention_with_lse"] == {
            "torch.attention_with_lse": 24
        }


# Prints what LightX2V's tables of platforms hold once it has chosen its device, or why it has not.
TABLES = """
import importlib.metadata, json, os
if os.environ.get("WITHOUT_OURS"):
    every = importlib.metadata.entry_points
    importlib.metadata.entry_points = lambda **given: importlib.metadata.EntryPoints(
        entry for entry in every(**given) if not entry.value.startswith("lightx2v_fl"))
found = {}
try:
    import lightx2v_platform.set_ai_device as seam
    if os.environ.get("TWICE"):
        seam.set_ai_device()
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
import lightx2v_platform.base.global_var as chosen, lightx2v_platform.registry_factory as tables
found["device"] = str(chosen.AI_DEVICE)
found |= {name: sorted(table) for name, table in vars(tables).items() if name.startswith("PLATFORM_")}
print(json.dumps(found))
"""


def platforms() -> list[str]:
    """The classes in LightX2V's tree, by the names they are registered by."""
    if "LIGHTX2V_PATH" not in os.environ:
        return ["cuda"]
    found = registered(checkout() / "lightx2v_platform" / "base")
    return sorted(found["DEVICE_REGISTER"])


def test_every_platform_in_the_tree_registers_what_it_does_without_us(run_python: Any) -> None:
    def tables_of(platform: str, **variables: str) -> dict[str, Any]:
        run = run_python(
            TABLES, path=checkout(), PLATFORM=platform, SKIP_PLATFORM_CHECK="1", **variables
        )
        found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return found

    assert len(platforms()) > 8
    for platform in platforms():
        ours, without = tables_of(platform), tables_of(platform, WITHOUT_OURS="1")
        ours["PLATFORM_DEVICE_REGISTER"].remove("flagos")
        assert ours == without, platform


def test_a_broken_plugin_and_a_second_choice_change_nothing(
    run_python: Any, tmp_path: Path
) -> None:
    from adapters.lightx2v.tests.test_seam import plugin

    broken = plugin(tmp_path, "aaa-broken", "def register():\n    raise OSError('no such chip')\n")
    script = f"import sys; sys.path.insert(1, {str(broken)!r})\n" + TABLES
    run = run_python(script, path=checkout(), PLATFORM="flagos", TWICE="1")
    found = json.loads(run.stdout.splitlines()[-1])
    assert "no such chip" in run.stderr and "error" not in found and found["device"] == "flagos"
    for table, (_, entries) in tables.ENTRIES.items():
        assert found[table] == sorted(entries)


def source_of(path: str) -> ast.Module:
    return ast.parse((checkout() / path).read_text())


@pytest.mark.parametrize(
    "path",
    [
        "lightx2v/common/ops/norm/rms_norm_weight.py",
        "lightx2v/common/ops/norm/layer_norm_weight.py",
        "lightx2v/common/ops/mm/mm_weight.py",
        "lightx2v/common/ops/moe/fused_moe.py",
    ],
)
def test_the_double_has_lightx2vs_signatures(path: str) -> None:
    """Compares signatures of classes and functions that both have; `*args` of the double stands for anything."""

    def signatures(tree: ast.Module) -> dict[str, list[str]]:
        found = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = [a.arg for a in node.args.args]
            elif isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.args.vararg:
                        found[f"{node.name}.{method.name}"] = [a.arg for a in method.args.args]
        return found

    ours = signatures(ast.parse((HERE / "seam" / path).read_text()))
    theirs = signatures(source_of(path))
    common = ours.keys() & theirs.keys()
    assert common
    assert {name: ours[name] for name in common} == {name: theirs[name] for name in common}


def test_the_double_has_lightx2vs_order_of_events() -> None:
    """The functions of the seam, by name and by what they call."""

    def calls(path: Path, function: str) -> list[str]:
        (node,) = (n for n in ast.walk(ast.parse(path.read_text()))
                   if isinstance(n, ast.FunctionDef) and n.name == function)  # fmt: skip
        return [c.func.id for c in ast.walk(node)
                if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]  # fmt: skip

    name = "lightx2v_platform/set_ai_device.py"
    assert calls(HERE / "seam" / name, "set_ai_device") == calls(checkout() / name, "set_ai_device")
    assert calls(checkout() / name, "set_ai_device") == [
        "_load_platform_plugins", "init_ai_device", "check_ai_device",
    ]  # fmt: skip


def test_the_tables_have_the_names_we_know() -> None:
    tree = source_of("lightx2v/utils/registry_factory.py")
    merged = {
        call.func.value.id: call.args[0].id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "merge"
        and isinstance(call.func.value, ast.Name)
        and isinstance(call.args[0], ast.Name)
    }
    assert merged == {final: platform for platform, (final, _) in tables.ENTRIES.items()}


def registered(path: Path) -> dict[str, set[str]]:
    """Names given to LightX2V's tables by decorators, by table."""
    found: dict[str, set[str]] = {}
    for file in path.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.args:
                    table = mark.func.id.removeprefix("PLATFORM_")
                    if isinstance(mark.args[0], ast.Constant):
                        found.setdefault(table, set()).add(mark.args[0].value)
    return found


def test_the_rules_know_every_kernel_of_lightx2v() -> None:
    found = registered(checkout() / "lightx2v")
    for table, names in registered(checkout() / "lightx2v_platform").items():
        found.setdefault(table, set()).update(names)
    found.setdefault("LN_WEIGHT_REGISTER", set()).update(found.get("LAYERNORM_WEIGHT_REGISTER", ()))
    for field, table, composed in (
        ("self_attn_1_type", "ATTN_WEIGHT_REGISTER", {"ring", "ulysses", "kv_all_gather"}),
        ("rms_norm_type", "RMS_WEIGHT_REGISTER", {"TensorParallel", "TensorParallelFP32",
                                                  "IntelTensorParallelFP32"}),
        ("layer_norm_type", "LN_WEIGHT_REGISTER", set()),
        ("rope_type", "ROPE_REGISTER", {"chunked_rope"}),
        ("moe_backend", "FUSED_MOE_REGISTER", set()),
        ("dit_quant_scheme", "MM_WEIGHT_REGISTER", {"Calib", "CalibMax", "TensorParallel",
                                                    "IntelTensorParallel"}),
    ):  # fmt: skip
        choice = fields.CHOICES[field]
        known = {choice.ours, *choice.portable, *choice.native}
        assert found[table] - composed <= known, field


#: Configurations of LightX2V which LightX2V itself could not run, each with the field.
WRONG_UPSTREAM = {
    ("neopp_moe_parallel_cfg.json", "line 13"),
    ("wan22_i2v_workload_stages.json", "line 1"),
    ("wan_i2v_distill_lora_4step_cfg_4090.json", "lora_dynamic_apply"),
    ("wan_t2v_distill_lora_4step_cfg_4090.json", "lora_dynamic_apply"),
    ("qwen_image_t2i_2512.json", "cpu_offload"),
    ("seko_talk_26_fp8_dist_fp8_comm.json", "parallel.seq_p_head_parallel"),
    *((f"wan_{task}.json", f"{attention}_type")
      for task in ("i2v", "t2v") for attention in ("self_attn_1", "cross_attn_1", "cross_attn_2")),
}  # fmt: skip


def test_the_rules_find_nothing_wrong_in_lightx2vs_own_configurations() -> None:
    files = sorted((checkout() / "configs").rglob("*.json"))
    assert len(files) > 100
    found = {
        (file.name, problem.field)
        for file in files
        for problem in rules.check_text(
            file.read_text(),
            model_cls="wan2.1" if "wan" in str(file.relative_to(checkout())) else None,
            device="cuda",
        )
    }
    assert found <= WRONG_UPSTREAM


def test_the_command_line_starts(tmp_path: Path) -> None:
    """`python -m lightx2v.infer` under PLATFORM=flagos, as far as the check of its configuration."""
    config = tmp_path / "config.json"
    config.write_text('{"infer_steps": 4, "self_attn_1_type": "flash_attn3"}')
    (tmp_path / "model").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "lightx2v.infer", "--model_cls", "wan2.1", "--task", "t2v",
         "--model_path", str(tmp_path / "model"), "--config_json", str(config)],
        env={**os.environ, "PLATFORM": "flagos", "PYTHONPATH": os.pathsep.join(
            filter(None, (str(checkout()), os.environ.get("PYTHONPATH", ""))))},
        capture_output=True,
        text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{config}:1: self_attn_1_type: 'flash_attn3' needs tensors of the chip" in done.stderr
    assert "rope_type: it is missing" in done.stderr


def test_a_video_is_written(tmp_path: Path) -> None:
    """LightX2V's command line with a ready configuration, made small; see the program for what is."""
    ready = Path(fields.__file__).parent / "configs" / "wan_t2v_bf16.json"
    paths = (str(checkout()), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, str(HERE / "whole_program.py"), str(tmp_path), str(ready)],
        env={
            **os.environ,
            "PLATFORM": "flagos",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counted = json.loads(done.stdout.splitlines()[-1].removeprefix("REPORT "))
    assert counted["lightx2v::attention"] == {"calls": 16, "fallbacks": 0}  # 2 steps of 2 passes
    assert not any(numbers["fallbacks"] for numbers in counted.values())
    video = (tmp_path / "video.mp4").read_bytes()
    assert video[4:8] == b"ftyp" and len(video) > 1000


def test_the_program_covers_what_it_says() -> None:
    assert set(tiny_wan.FAULTS) == {"wrong_rope", "no_rms_norm"}
    assert "device" in inspect.signature(tiny_wan.checkpoint).parameters

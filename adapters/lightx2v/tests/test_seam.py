"""How the platform gets into LightX2V, and what happens to everybody else in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TABLES = """
import json, lightx2v_platform.registry_factory as tables
print(json.dumps({name: sorted(table) for name, table in vars(tables).items()
                  if name.startswith("PLATFORM_") and not name.endswith("DEVICE_REGISTER")}))
"""
FINAL = """
import json, lightx2v.utils.registry_factory as tables
print(json.dumps({name: sorted(table) for name, table in vars(tables).items()
                  if name.endswith("_REGISTER") and not name.startswith("PLATFORM_")}))
"""
OURS = {
    "ATTN_WEIGHT_REGISTER": ["flagos_flash_attn"],
    "MM_WEIGHT_REGISTER": ["flagos", "flagos-fp8", "flagos-int8"],
    "RMS_WEIGHT_REGISTER": ["flagos_rms_norm"],
    "LN_WEIGHT_REGISTER": ["flagos_layer_norm"],
    "ROPE_REGISTER": ["flagos_rope"],
    "FUSED_MOE_REGISTER": ["flagos_moe"],
}


def plugin(folder: Path, name: str, body: str) -> Path:
    """Another package with a plugin, as if it were installed; `name` decides when it is found."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(body)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[lightx2v.platform_plugins]\n{module} = {module}:register\n"
    )
    return folder


def last_line(output: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(output.splitlines()[-1])
    return found


def test_the_distribution_has_an_entry_point() -> None:
    found = [e for e in entry_points(group="lightx2v.platform_plugins") if e.name == "flagos"]
    assert [e.value for e in found] == ["lightx2v_fl:register"]


def test_every_key_reaches_lightx2v(run_python: Run) -> None:
    run = run_python("import lightx2v\n" + FINAL, PLATFORM="flagos")
    assert last_line(run.stdout) == OURS
    assert "loaded flagos" in run.stderr


def test_registering_touches_the_table_of_devices_alone(run_python: Run) -> None:
    script = """
    import sys
    from lightx2v_fl import register
    assert not {"torch", "lightx2v", "lightx2v_platform"} & sys.modules.keys()
    register(); register()
    from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER
    from lightx2v_platform.base import global_var
    assert sorted(PLATFORM_DEVICE_REGISTER) == ["cuda", "flagos"] and global_var.AI_DEVICE is None
    assert not {"lightx2v", "flag_gems", "lightx2v_fl.operators"} & sys.modules.keys()
    """
    run_python(dedent(script) + TABLES, fresh=True)


@pytest.mark.parametrize("platform", ["cuda", None])
def test_other_platforms_are_as_they_were(run_python: Run, platform: str | None) -> None:
    run = run_python("import lightx2v\n" + TABLES, PLATFORM=platform)
    assert "loaded flagos" in run.stderr
    found = last_line(run.stdout)
    assert found.pop("PLATFORM_ATTN_WEIGHT_REGISTER") == ["in_tree_attn"]
    assert not any(found.values())


@pytest.mark.parametrize("name", ["aaa-broken", "zzz-broken"])
def test_a_broken_plugin_beside_ours(run_python: Run, tmp_path: Path, name: str) -> None:
    path = plugin(tmp_path, name, "def register():\n    raise OSError('no such chip')\n")
    run = run_python("import lightx2v\n" + FINAL, path=path, PLATFORM="flagos")
    assert "no such chip" in run.stderr
    assert last_line(run.stdout) == OURS


def test_a_plugin_that_takes_one_of_our_names(run_python: Run, tmp_path: Path) -> None:
    body = (
        "def register():\n"
        "    from lightx2v_platform.registry_factory import PLATFORM_ROPE_REGISTER as table\n"
        "    table['flagos_rope'] = dict\n"
    )
    run = run_python(
        "import lightx2v", path=plugin(tmp_path, "other", body), fails=True, PLATFORM="flagos"
    )
    assert "PLATFORM_ROPE_REGISTER of LightX2V has an entry 'flagos_rope' already" in run.stderr


def test_a_plugin_that_takes_the_platform(run_python: Run, tmp_path: Path) -> None:
    body = (
        "class Theirs: pass\n"
        "def register():\n"
        "    from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER as table\n"
        "    table['flagos'] = Theirs\n"
    )
    script = "import other; other.register(); import lightx2v_fl; lightx2v_fl.register()"
    run = run_python(script, path=plugin(tmp_path, "other", body), fails=True)
    assert "has a platform 'flagos' already, other.Theirs" in run.stderr


def test_the_device_is_chosen_twice(run_python: Run) -> None:
    script = """
    import lightx2v, lightx2v.utils.registry_factory
    from lightx2v_platform import set_ai_device
    set_ai_device.set_ai_device()
    from lightx2v_platform.base.global_var import AI_DEVICE
    assert AI_DEVICE == "flagos"
    """
    assert last_line(run_python(dedent(script) + FINAL, PLATFORM="flagos").stdout) == OURS


def test_tables_that_were_copied_already_are_completed(run_python: Run) -> None:
    script = "import lightx2v_platform, lightx2v_platform.base.global_var as g; g.AI_DEVICE = 'x'\n"
    script += (
        "import lightx2v.utils.registry_factory\nfrom lightx2v_fl import tables\ntables.install()\n"
    )
    found = last_line(run_python(script + FINAL, PLATFORM="cuda").stdout)
    assert found.pop("ATTN_WEIGHT_REGISTER") == ["flagos_flash_attn", "in_tree_attn"]
    assert all(found[name] == OURS[name] for name in found)


def test_activation_before_lightx2v(run_python: Run) -> None:
    script = "import lightx2v_fl; lightx2v_fl.activate(); import lightx2v\n"
    assert last_line(run_python(script + FINAL).stdout) == OURS


def test_activation_after_lightx2v_gives_it_our_operators(run_python: Run) -> None:
    script = """
    import lightx2v, lightx2v_fl, lightx2v.models.networks.base_model as models
    lightx2v_fl.activate()
    models.BaseTransformerModel({"dit_quantized": True, "dit_quant_scheme": "flagos-fp8"})
    """
    run = run_python(dedent(script) + FINAL, PLATFORM="cuda", FLAGOS_LIGHTX2V_DEVICE="cpu")
    assert "flagos_flash_attn" in last_line(run.stdout)["ATTN_WEIGHT_REGISTER"]


def test_activation_says_what_stands_in_the_way(run_python: Run) -> None:
    late = "import lightx2v, lightx2v_fl; lightx2v_fl.activate()"
    run = run_python(late, fails=True, PLATFORM="cuda")
    assert "runs on 'cpu', not on 'flagos'" in run.stderr
    assert "FLAGOS_LIGHTX2V_DEVICE=cpu" in run.stderr
    run = run_python("import lightx2v_fl; lightx2v_fl.activate()", fails=True, PLATFORM="cuda")
    assert "PLATFORM=cuda is set" in run.stderr


def test_the_native_device(run_python: Run) -> None:
    script = """
    import lightx2v
    from lightx2v_platform.base.global_var import AI_DEVICE
    assert AI_DEVICE == "cpu"
    """
    run = run_python(dedent(script) + FINAL, PLATFORM="flagos", FLAGOS_LIGHTX2V_DEVICE="cpu")
    assert last_line(run.stdout) == OURS


def test_a_wrong_device_is_named(run_python: Run) -> None:
    run = run_python(
        "import lightx2v", fails=True, PLATFORM="flagos", FLAGOS_LIGHTX2V_DEVICE="cudo"
    )
    assert "FLAGOS_LIGHTX2V_DEVICE=cudo is no device" in run.stderr
    assert "did you mean 'cuda'?" in run.stderr


def test_a_device_that_is_not_there(run_python: Run) -> None:
    run = run_python("import lightx2v", fails=True, PLATFORM="flagos", FLAGOS_LIGHTX2V_DEVICE="npu")
    assert "AI device for platform 'flagos' is not available" in run.stderr


@pytest.mark.usefixtures("lightx2v")
def test_quantization_schemes_are_accepted_narrowly() -> None:
    from lightx2v.models.networks.base_model import BaseTransformerModel

    for scheme in ("flagos", "flagos-fp8", "flagos-int8", "fp8-vllm"):
        BaseTransformerModel({"dit_quantized": True, "dit_quant_scheme": scheme})
    with pytest.raises(AssertionError):
        BaseTransformerModel({"dit_quantized": True, "dit_quant_scheme": "flagos-fp4"})


@pytest.mark.usefixtures("lightx2v")
def test_a_configuration_is_checked_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from argparse import Namespace

    from lightx2v.utils.set_config import set_config

    from lightx2v_fl.rules import ConfigurationError

    file = tmp_path / "config.json"
    file.write_text('{\n  "infer_steps": 4,\n  "rms_norm_typ": "flagos_rms_norm"\n}\n')
    arguments = Namespace(model_cls="wan2.1", task="t2v", config_json=str(file))
    with pytest.raises(ConfigurationError) as caught:
        set_config(arguments)
    assert f"{file}:3: rms_norm_typ: there is no such field; did you mean rms_norm_type?" in str(
        caught.value
    )
    assert "target_video_length: it is missing" in str(caught.value)
    monkeypatch.setenv("FLAGOS_LIGHTX2V_CHECK", "0")
    assert set_config(arguments)["infer_steps"] == 4


@pytest.mark.usefixtures("lightx2v")
class TestParallel:
    """Joining a parallel run, and what is missing for it."""

    def join(self) -> None:
        from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER

        PLATFORM_DEVICE_REGISTER["flagos"].init_parallel_env()

    def test_needs_torchrun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("LOCAL_RANK", raising=False)
        with pytest.raises(RuntimeError, match="torchrun --nproc_per_node"):
            self.join()

    def test_needs_a_device_for_each_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOCAL_RANK", "64")
        with pytest.raises(RuntimeError, match="rank 64 of this machine needs a device of its own"):
            self.join()

    def test_runs_on_the_chips_own_device(self, run_python: Run) -> None:
        script = """
        import lightx2v, torch, torch.distributed as dist
        from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER
        PLATFORM_DEVICE_REGISTER["flagos"].init_parallel_env()
        assert dist.get_backend() == "gloo"
        x = torch.ones(3); dist.all_reduce(x); dist.destroy_process_group()
        """
        ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        run_python(script, PLATFORM="flagos", FLAGOS_LIGHTX2V_DEVICE="cpu", **ranks, **where)

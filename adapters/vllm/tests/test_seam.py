"""How the platform gets into vLLM, and what happens to everybody else in it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from adapters.serving.tests.processes import distribution
from vllm_flagos import activation

Run = Callable[..., "subprocess.CompletedProcess[str]"]

WHICH = """
from vllm.platforms import current_platform
print(type(current_platform).__name__)
"""


def which(run: subprocess.CompletedProcess[str]) -> str:
    return run.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("vllm.platform_plugins", "vllm_flagos:platform"),
        ("vllm.general_plugins", "vllm_flagos:general"),
    ],
)
def test_the_distribution_has_its_entry_points(group: str, value: str) -> None:
    assert [e.value for e in entry_points(group=group) if e.name == "flagos"] == [value]


def test_importing_the_package_imports_neither(run_python: Run) -> None:
    script = "import sys, vllm_flagos; assert not {'torch', 'vllm'} & sys.modules.keys()"
    run_python(script)


CHOICES = {
    "asked for": ({"VLLM_PLUGINS": "flagos"}, "FlagosPlatform"),
    "asked for beside another": ({"VLLM_PLUGINS": "flagos", "SEAM_CUDA": "1"}, "FlagosPlatform"),
    "no other platform": ({"VLLM_PLUGINS": None}, "FlagosPlatform"),
    "another platform": ({"VLLM_PLUGINS": None, "SEAM_CUDA": "1"}, "Cuda"),
    "another plugin is asked for": ({"VLLM_PLUGINS": "other", "SEAM_CUDA": "1"}, "Cuda"),
    "no plugin": ({"VLLM_PLUGINS": ""}, "Unspecified"),
}


@pytest.mark.parametrize(("variables", "chosen"), CHOICES.values(), ids=CHOICES)
def test_the_platform_that_serves(
    run_python: Run, variables: dict[str, str | None], chosen: str
) -> None:
    assert which(run_python(WHICH, **variables)) == chosen


def test_nothing_is_done_where_another_platform_serves(run_python: Run) -> None:
    script = """
import sys, torch
from vllm.platforms import current_platform, load_general_plugins
load_general_plugins()
import vllm.utils.torch_utils as torch_utils
assert torch.cuda.set_stream is torch_utils._patched_set_stream  # as vLLM wants it
assert type(current_platform).__name__ == "Cuda"
assert not hasattr(torch.ops._C, "rms_norm") and not hasattr(torch.ops._moe_C, "topk_softmax")
ours = {n for n in sys.modules if n.startswith("vllm_flagos")}
assert ours == {"vllm_flagos", *(f"vllm_flagos.{n}" for n in ("_version", "activation", "releases"))}, ours
"""
    run_python(script, VLLM_PLUGINS=None, SEAM_CUDA="1")


def test_listing_the_operators_registers_nothing_with_torch(run_python: Run) -> None:
    script = """
import sys, torch, flagos
from vllm_flagos import register_operators
register_operators(); register_operators()
assert flagos.explain("_C::rms_norm").data["winner"] == "reference.rms_norm"
assert not hasattr(torch.ops._C, "rms_norm") and "vllm" not in sys.modules
from vllm_flagos.kernels import declare
declare(); declare()
assert torch.ops._C.rms_norm
"""
    run_python(script, FLAGOS_VENDOR="host")


def test_the_command_explains_them(run_python: Run) -> None:
    script = """
from flagos.cli import main
assert main(["explain", "_C::silu_and_mul"]) == 0 and main(["explain", "vllm::lora_shrink"]) == 0
"""
    report = run_python(script, FLAGOS_VENDOR="host").stdout
    assert "_C::silu_and_mul -> reference.silu_and_mul" in report
    assert "vLLM's own kernels are for CUDA, and vendor host serves flagos here" in report


def test_torch_cuda_stays_as_it_was(run_python: Run) -> None:
    script = """
import torch
before = dict(vars(torch.cuda))
from vllm.platforms import current_platform, load_general_plugins
import vllm.utils.torch_utils
assert torch.cuda.set_stream is not before["set_stream"]
load_general_plugins()
changed = [n for n, v in before.items() if vars(torch.cuda)[n] is not v]
assert changed == [], changed
assert torch.ops._C.rms_norm
"""
    run_python(script)


def other(folder: Path, body: str) -> Path:
    """Another package with a platform, as if it were installed."""
    (folder / "other_platform.py").write_text(body)
    info = folder / "other_platform-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-platform\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.platform_plugins]\nother = other_platform:ask\n")
    return folder


def test_another_plugin_goes_first_unless_flagos_is_asked_for(
    run_python: Run, tmp_path: Path
) -> None:
    path = other(tmp_path, "def ask(): return 'vllm.platforms.interface.Cuda'\n")
    assert which(run_python(WHICH, path=path, VLLM_PLUGINS=None)) == "Cuda"
    assert which(run_python(WHICH, path=path, VLLM_PLUGINS="flagos")) == "FlagosPlatform"


def test_a_broken_plugin_beside_ours(run_python: Run, tmp_path: Path) -> None:
    path = other(tmp_path, "def ask(): raise OSError('no such chip')\n")
    assert which(run_python(WHICH, path=path, VLLM_PLUGINS=None)) == "FlagosPlatform"


REFUSALS = {
    "vLLM too new": (
        ("vllm", "0.34.0"),
        {},
        "vLLM 0.34.0 is installed, and this vllm-flagos knows",
    ),
    "vLLM too old": (
        ("vllm", "0.25.1"),
        {},
        "knows vLLM 0.26.* on torch 2.11.*, 0.33.* on torch 2.14.*: pip install",
    ),
    "another torch": (("torch", "2.13.0"), {}, ", and torch 2.13.0 is installed: pip install"),
    "no device": (
        None,
        {"FLAGOS_VENDOR": "nothere"},
        "this process has no flagos device: FLAGOS_VENDOR: there is no vendor `nothere`",
    ),
}


@pytest.mark.parametrize("cuda", [None, "1"], ids=["alone", "beside cuda"])
@pytest.mark.parametrize(("installed", "variables", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_failure_is_loud(
    run_python: Run,
    tmp_path: Path,
    installed: tuple[str, str] | None,
    variables: dict[str, str],
    words: str,
    cuda: str | None,
) -> None:
    """vLLM swallows what a plugin raises, so the class that it is given raises."""
    path = distribution(tmp_path, *installed) if installed else None
    run = run_python(WHICH, path=path, fails=True, SEAM_CUDA=cuda, **variables)
    assert words in run.stderr and "RuntimeError" in run.stderr
    assert "Cuda" not in run.stdout


def test_a_failure_is_no_concern_of_another_platform(run_python: Run, tmp_path: Path) -> None:
    path = distribution(tmp_path, "vllm", "0.34.0")
    assert which(run_python(WHICH, path=path, VLLM_PLUGINS=None, SEAM_CUDA="1")) == "Cuda"


PAIRS = {
    ("0.26.1", "2.11.0"): None,
    ("0.33.0", "2.14.1"): None,
    (
        "0.33.0",
        "2.11.0",
    ): "vLLM 0.33.0 needs torch 2.14, and torch 2.11.0 is installed: pip install torch==2.14.0",
    (
        "0.26.0",
        "2.14.1",
    ): "vLLM 0.26.0 needs torch 2.11, and torch 2.14.1 is installed: pip install torch==2.11.0",
    ("0.30.0", "2.14.1"): "pip install vllm==0.33.0",
    ("0.30.0", "2.13.0"): "pip install vllm==0.26.0",
}


@pytest.mark.parametrize(("pair", "words"), PAIRS.items(), ids=map("-".join, PAIRS))
def test_the_releases_that_go_together(pair: tuple[str, str], words: str | None) -> None:
    found = activation.wrong_versions(*pair)
    assert found is words or (words and found and words in found)


def test_another_platform_that_asks_no_plugin_is_no_silence(run_python: Run) -> None:
    script = """
from vllm.platforms import current_platform, load_general_plugins
assert type(current_platform).__name__ == "Cpu"
load_general_plugins()
"""
    run = run_python(script, fails=True, VLLM_TARGET_DEVICE="cpu")
    assert "flagos is asked for, and vLLM took Cpu without asking its plugins" in run.stderr
    run_python(script, VLLM_TARGET_DEVICE="cpu", VLLM_PLUGINS="")


def test_the_platform_is_asked_in_every_process_and_twice(run_python: Run) -> None:
    script = "from vllm_flagos import platform, general\nassert platform() == platform()\ngeneral(); general()\n"
    run_python(script + WHICH)


def test_what_the_platform_says(run_python: Run) -> None:
    script = """
import torch
from vllm.platforms import current_platform as p
from vllm.v1.attention.backends.registry import AttentionBackendEnum
assert p.is_out_of_tree() and torch.device(f"{p.device_name}:0") == torch.device("flagos", 0)
assert p.get_device_total_memory() == torch.flagos.get_device_properties(0).total_memory
assert p.current_stream() == torch.flagos.current_stream()  # through torch.flagos
assert p.get_device_capability() is None and p.supports_fp8() and not p.support_static_graph_mode()
assert AttentionBackendEnum.CUSTOM.get_path() == "vllm_flagos.attention.FlagosAttention"
"""
    run_python(script, FLAGOS_VENDOR="host")


def test_vllm_finds_the_connector_before_it_has_its_defaults(run_python: Run) -> None:
    script = """
from types import SimpleNamespace as Some
from vllm.platforms import current_platform

for name, module in (("FlagosConnector", "vllm_flagos.transfer"), ("Another", None)):
    config = Some(
        compilation_config=Some(cudagraph_mode=None, pass_config=Some(), custom_ops=[]),
        kv_transfer_config=Some(kv_connector=name, kv_connector_module_path=None),
    )
    current_platform.apply_config_platform_defaults(config)
    assert config.kv_transfer_config.kv_connector_module_path == module
"""
    run_python(script)


def test_nvml_says_whether_nvlink_joins_the_devices(run_python: Run) -> None:
    script = """
import sys, types

joined = {(0, 1), (1, 3), (0, 3)}
nvml = types.SimpleNamespace(
    NVMLError=ValueError, NVML_P2P_CAPS_INDEX_NVLINK=2, NVML_P2P_STATUS_OK=0, nvmlInit=lambda: None,
    nvmlDeviceGetHandleByIndex=lambda number: number,
    nvmlDeviceGetP2PStatus=lambda one, other, index: 0 if (one, other) in joined and index == 2 else 4,
)
sys.modules["vllm.third_party"] = types.SimpleNamespace(pynvml=nvml)
from vllm.platforms import current_platform as platform

assert platform.is_fully_connected([0, 1, 3]) and platform.is_fully_connected([2])
assert not platform.is_fully_connected([0, 1, 2])

def fails():
    raise ValueError("no driver")

nvml.nvmlInit = fails
assert not platform.is_fully_connected([0, 1])
assert not platform.use_custom_allreduce()  # no wheel of vLLM with kernels for CUDA is here
"""
    report = run_python(script, FLAGOS_VENDOR="host").stderr
    assert "NVML does not say whether NVLink joins the devices: no driver" in report

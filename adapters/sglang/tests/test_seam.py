"""How the platform gets into SGLang, and what happens to everybody else in it."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from adapters.serving.tests.processes import distribution
from adapters.sglang.tests import seam_facts
from adapters.sglang.tests.conftest import SEAM, Run
from sglang_flagos import activation, releases

# For tests of what differs between the releases; the others run with the one for this torch.
every_release = pytest.mark.parametrize(
    "release", releases.RELEASES, indirect=True, ids=[one.number for one in releases.RELEASES]
)

WHICH = """
import sglang.srt.utils.common
from sglang.srt.platforms import current_platform
print(type(current_platform).__name__)
"""


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("sglang.srt.platforms", "sglang_flagos:platform"),
        ("sglang.srt.plugins", "sglang_flagos:general"),
    ],
)
def test_the_distribution_has_its_entry_points(group: str, value: str) -> None:
    assert [e.value for e in entry_points(group=group) if e.name == "flagos"] == [value]


@every_release
def test_the_double_has_the_facts(release: releases.Release) -> None:
    assert seam_facts.facts(SEAM, release, double=True) == []


def test_importing_the_package_imports_neither(run_python: Run) -> None:
    run_python("import sys, sglang_flagos; assert not {'torch', 'sglang'} & sys.modules.keys()")


CHOICES: dict[str, tuple[dict[str, str | None], str]] = {
    "asked for": ({"SGLANG_PLATFORM": "flagos"}, "FlagosPlatform"),
    "no other platform": ({"SGLANG_PLATFORM": None}, "FlagosPlatform"),
    "the CPU is asked for": (
        {"SGLANG_PLATFORM": None, "SGLANG_USE_CPU_ENGINE": "1"},
        "SRTPlatform",
    ),
}


@pytest.mark.parametrize(("variables", "chosen"), CHOICES.values(), ids=CHOICES)
def test_the_platform_that_serves(
    run_python: Run, variables: dict[str, str | None], chosen: str
) -> None:
    assert run_python(WHICH, **variables).stdout.splitlines()[-1] == chosen


def test_nothing_is_done_where_cuda_is_there(run_python: Run) -> None:
    script = """
import sys, torch
torch.cuda.is_available = lambda: True
torch.version.cuda = "12.8"
import sglang.srt.utils.common as common
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.platforms import current_platform
assert type(current_platform).__name__ == "CudaSRTPlatform"
assert common.torch is torch and common.is_cuda() and common.Library is torch.library.Library
ours = {n for n in sys.modules if n.startswith("sglang_flagos")}
assert ours == {"sglang_flagos", *(f"sglang_flagos.{n}" for n in ("_version", "activation", "releases"))}, ours
"""
    run_python(script, SGLANG_PLATFORM=None, SEAM_CUDA="1")


def test_cuda_is_hidden_from_those_who_ask_torch_and_from_nobody_else(run_python: Run) -> None:
    script = """
import torch
torch.cuda.is_available = lambda: True
torch.version.cuda = "12.8"
torch.cuda.device_count = lambda: 8
import sglang.srt.utils.common as common
assert not common.is_cuda() and common.torch.cuda.device_count() == 0
assert common.torch.Tensor is torch.Tensor
assert torch.cuda.is_available() and torch.cuda.device_count() == 8
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.managers import scheduler
assert scheduler.torch.cuda.is_available() and scheduler.torch.cuda.Stream is torch.flagos.Stream
assert common.get_device_count() == torch.flagos.device_count() == 2
from sglang.srt.lora.backend import chunked_backend
assert chunked_backend.buffer().device == torch.device("flagos", 0)
assert chunked_backend.torch.device("cpu") == torch.device("cpu")
"""
    run_python(script)


def test_modules_of_flagos_on_cuda_take_it_for_cuda(run_python: Run) -> None:
    script = """
import sglang.srt.utils.common
import sglang_flagos.view as view
view.device_type, view.capability = (lambda: "cuda"), (lambda: (9, 0))
view.install()
from sglang.kernels.ops.attention import extend_attention
from sglang.srt.managers import overlap_utils
assert extend_attention._is_cuda and extend_attention.CUDA_CAPABILITY == (9, 0)
assert overlap_utils._is_cuda and not hasattr(overlap_utils, "CUDA_CAPABILITY")
del overlap_utils._is_cuda
try:
    view.install()
except RuntimeError as error:
    print(error)
"""
    run = run_python(script)
    assert "sglang.srt.managers.overlap_utils has no `_is_cuda`" in run.stdout


OF_RELEASE = {
    "0.5.17": """
import torch
import sglang.srt.utils.common as common
common.sglang_lib.define("twice(Tensor x) -> Tensor")
common.sglang_lib.impl("twice", lambda x: x * 2, "CUDA")
assert torch.ops.sglang.twice(torch.ones(2, device="flagos")).tolist() == [2.0, 2.0]
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.distributed.parallel_state import GroupCoordinator
group = GroupCoordinator([[0]], 1, "flagos", True, True, use_custom_allreduce=True,
    use_torch_symm_mem_all_reduce=True, use_hpu_communicator=False, use_xpu_communicator=False,
    use_npu_communicator=False)
assert group.device == torch.device("flagos", 1) and group.communicators == (False,) * 4
from sglang.srt.managers.utils import _async_d2h
x = torch.arange(5, device="flagos")
y = _async_d2h(x); torch.accelerator.synchronize()
assert y.is_pinned() and y.tolist() == [0, 1, 2, 3, 4]
assert "torch_fl.runtime.sharing." in common.SafeUnpickler.ALLOWED_MODULE_PREFIXES
from sglang.srt.managers.tp_worker import BaseTpWorker
done, message = BaseTpWorker().update_weights_from_tensor("x")
assert not done and message == "it cannot be done (ValueError: a broken message)"
""",
    "0.5.23": """
import torch
import sglang.srt.utils.common as common
assert common.Library is torch.library.Library
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.platforms import current_platform
assert current_platform.get_group_coordinator_device(1) == torch.device("flagos", 1)
assert tuple(current_platform.capabilities) == (False, False)
from torch_fl.runtime import sharing
assert len(common.SafeUnpickler.ALLOWED_GLOBALS) == 1 + len(sharing.REBUILDERS)
reduced, _ = sharing._sharing().reduce(torch.ones(3, device="flagos").untyped_storage())
assert (reduced.__module__, reduced.__name__) in common.SafeUnpickler.ALLOWED_GLOBALS
from sglang.srt.managers.tp_worker import BaseTpWorker
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
found = BaseTpWorker().deserialize_own_rank([b"x"])
for load_format in (None, "flattened_bucket"):
    done, message = WeightUpdater().update_weights_from_tensor(found, load_format=load_format)
    assert not done and message == "it cannot be done (ValueError: a broken message)"
assert current_platform.get_kv_pool_cls(kind="mha") is current_platform.get_paged_allocator_cls() is None
""",
}


@every_release
def test_what_one_release_has(run_python: Run, release: releases.Release) -> None:
    run_python(OF_RELEASE[release.number], FLAGOS_VENDOR="host")


@every_release
def test_whole(run_python: Run) -> None:
    script = """
import sglang.srt.utils.common
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang_flagos import completeness, hooks
completeness.require()
import torch
from sglang.srt.utils.torch_memory_saver_adapter import TorchMemorySaverAdapter
assert TorchMemorySaverAdapter.create(True) is False
from sglang.srt.utils import common
assert not common.support_triton("flagos")
from sglang.kernels.ops.activation.softcap import softcap_inplace_logits
logits = torch.tensor([[1.0, -40.0]], device="flagos")
assert softcap_inplace_logits(logits, 20.0) is logits
torch.testing.assert_close(logits.cpu(), 20 * torch.tanh(torch.tensor([[0.05, -2.0]])))
from sglang.kernels.ops.elementwise.elementwise import fused_gate_sigmoid_mul_add
hidden, shared, routed = torch.randn(3, 5, 8).bfloat16().to("flagos")
gate, before = torch.randn(8).bfloat16().to("flagos"), routed.cpu().double()
fused_gate_sigmoid_mul_add(hidden, gate, shared, routed)
factors = torch.sigmoid(hidden.cpu().double() @ gate.cpu().double())
summed = before + factors[:, None] * shared.cpu().double()
torch.testing.assert_close(routed.cpu().double(), summed, rtol=2**-8, atol=1e-6)
assert common.get_device_core_count() == torch.flagos.get_device_properties(0).multi_processor_count
from sglang.srt.mem_cache.memory_pool import _set_kv_buffer_impl
cache = torch.zeros(2, 4, 1, 2, device="flagos")
new = torch.ones(2, 1, 2, device="flagos")
_set_kv_buffer_impl(new, 2 * new, *cache, torch.tensor([3, 1], device="flagos"), 2, torch.float32, torch.flagos, 4)
assert cache[..., 0, 0].tolist() == [[0, 1, 0, 1], [0, 2, 0, 2]]
from sglang.srt.managers import overlap_utils
assert overlap_utils._is_cuda is False
from sglang.srt.mem_cache.allocation import get_last_loc
rows = torch.arange(12, device="flagos").view(3, 4)
two, lengths = torch.tensor([[2, 0], [3, 0]], device="flagos")
assert get_last_loc(rows, two, lengths).tolist() == [10, -1]
"""
    run_python(script, FLAGOS_VENDOR="host")


@every_release
def test_weights_are_compared_on_the_device(run_python: Run) -> None:
    script = """
import sglang.srt.utils.common
from sglang.srt.plugins import load_plugins
load_plugins()
import torch
from sglang.srt.utils.weight_checker_comparator import RawComparable
for tensor in (torch.arange(6.0).view(2, 3), torch.arange(6.0, device="flagos").view(2, 3)):
    parts = [part for part, scale in RawComparable(tensor).iter_chunks()]
    assert [(part.device.type, part.tolist()) for part in parts] == [
        ("flagos", [0, 1, 2, 3]), ("flagos", [4, 5])]
"""
    run_python(script, FLAGOS_VENDOR="host")


@every_release
def test_the_server_tells_what_ran_and_what_was_gathered(run_python: Run) -> None:
    script = """
import sglang.srt.utils.common
from sglang.srt.plugins import load_plugins
load_plugins()
import torch
from torch_fl import distributed
from sglang.srt.managers.scheduler import Scheduler
torch.ones(2, device="flagos").add_(1)
state = Scheduler().get_internal_state(None).internal_state
assert state["device"] == "cpu" and state["flagos_gathered"] == []
assert state["flagos"]["aten::add_.Tensor"] == {"calls": 1, "fallbacks": 0}
reduction = {"library": "hccl", "op": "sum", "dtype": "float64", "calls": 2, "bytes": 64}
distributed.gathered = lambda: [reduction]
assert Scheduler().get_internal_state(None).internal_state["flagos_gathered"] == [reduction]
"""
    run_python(script, FLAGOS_VENDOR="host")


@every_release
def test_a_profile_that_fails_ends_alone(run_python: Run) -> None:
    script = """
import sglang.srt.utils.common
from sglang.srt.plugins import load_plugins
load_plugins()
import torch
from sglang.srt.managers.scheduler_components.profiler_manager import SchedulerProfilerManager
manager = SchedulerProfilerManager()
for _ in range(2):
    answer = manager._profile("no such folder")
    assert not answer.success and answer.message == "the profile has ended (OSError: no such folder)"
    assert not torch.autograd._profiler_enabled() and manager.torch_profiler is None
assert manager._profile_batch_predicate("a full disk") is None
"""
    run_python(script, FLAGOS_VENDOR="host")


HALVES = {
    "not loaded": ("", "its plugin was not loaded"),
    "failed": (
        "import sglang_flagos.view as view\n"
        "def fails(): raise OSError('no such view')\n"
        "view.install = fails\n"
        "from sglang.srt.plugins import load_plugins; load_plugins()\n",
        "its plugin failed (OSError: no such view)",
    ),
    "a hook that does not apply": (
        "import sglang.srt.mem_cache.allocation as theirs; del theirs.get_last_loc\n"
        "from sglang.srt.plugins import load_plugins; load_plugins()\n",
        "no hook was applied to sglang.srt.mem_cache.allocation.get_last_loc",
    ),
}


@every_release
@pytest.mark.parametrize(("script", "words"), HALVES.values(), ids=HALVES)
def test_a_half_adapter_ends_the_start(run_python: Run, script: str, words: str) -> None:
    """In the process that parses arguments, and in the scheduler's, which does not."""
    last = """
from sglang.srt.platforms import current_platform
for ask in (
    lambda: current_platform.apply_server_args_defaults(None),
    lambda: current_platform.get_kv_pool_cls(kind="mha"),
    current_platform.get_paged_allocator_cls,
):
    try:
        ask()
    except RuntimeError as error:
        print(error)
"""
    run = run_python("import sglang.srt.utils.common\n" + script + last)
    assert run.stdout.count(f"flagos cannot serve SGLang: {words}") == 3


def test_a_platform_that_is_asked_for_too_early_or_too_late(run_python: Run) -> None:
    run = run_python("from sglang.srt.platforms import current_platform", fails=True)
    assert "Import sglang.srt.utils before sglang.srt.platforms.current_platform" in run.stderr


REFUSALS: dict[str, tuple[tuple[str, str] | None, dict[str, str], str]] = {
    "SGLang too new": (
        ("sglang", "0.5.24"),
        {},
        "SGLang 0.5.24 is installed, and this sglang-flagos knows SGLang 0.5.17 on torch 2.11.*, "
        "0.5.23 on torch 2.14.*: pip install",
    ),
    "no device": (
        None,
        {"FLAGOS_VENDOR": "nothere"},
        "this process has no flagos device: FLAGOS_VENDOR: there is no vendor `nothere`",
    ),
}


@pytest.mark.parametrize(("installed", "variables", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_failure_is_loud(
    run_python: Run,
    tmp_path: Path,
    installed: tuple[str, str] | None,
    variables: dict[str, str],
    words: str,
) -> None:
    path = distribution(tmp_path, *installed) if installed else None
    run = run_python(WHICH, path=path, fails=True, **variables)
    assert words in run.stderr and "SRTPlatform" not in run.stdout


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SGLANG_PLUGINS", "a, b", "SGLANG_PLUGINS=a, b leaves its plugin `flagos` out"),
        ("SGLANG_PLUGINS", "a, flagos", None),
        ("SGLANG_USE_CPU_ENGINE", "1", "SGLANG_USE_CPU_ENGINE=1 makes SGLang compute on the"),
    ],
)
def test_a_variable_that_stands_in_the_way(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str | None
) -> None:
    numbers = {"sglang": "0.5.23", "torch": "2.14.1"}
    monkeypatch.setattr(activation, "version", numbers.__getitem__)
    monkeypatch.setenv(name, value)
    found = activation.problem.__wrapped__()
    assert found is words or (words and found and found.startswith(words))


def test_variables_of_the_plugin_of_flagos(run_python: Run) -> None:
    script = """
import logging, os
logging.basicConfig()
import sglang.srt.utils.common, flagos
assert flagos.explain("sglang::rms_norm").data["winner"] == "reference.rms_norm"
for op in ("silu_and_mul", "rms_norm"):
    print(flagos.explain(f"sglang::{op}").data["selectors"])
"""
    run = run_python(
        script,
        SGLANG_FL_PREFER="reference",
        SGLANG_FL_PER_OP="rms_norm=vendor|reference; topk=flagos",
        SGLANG_FL_DISPATCH_LOG="x",
        SGLANG_FL_NEW="1",
    )
    assert run.stdout.splitlines()[-2:] == [
        "['reference', 'flagos', 'vendor']",
        "['vendor', 'reference']",
    ]
    assert "SGLANG_FL_DISPATCH_LOG has no effect on flagos: set FLAGOS_LOG=dispatch" in run.stderr
    assert "SGLANG_FL_NEW has no effect on flagos" in run.stderr
    assert "flagos has no operator topk for SGLang, only" in run.stderr
    assert "SGLANG_FL_PREFER has no effect" not in run.stderr


PAIRS = {
    ("0.5.17", "2.11.0"): None,
    ("0.5.17", "2.14.1"): "pip install torch==2.11.0",
    ("0.5.18", "2.11.0"): "pip install --no-deps sglang==0.5.17",
    ("0.5.22", "2.14.1"): "pip install --no-deps sglang==0.5.23",
    ("0.5.23", "2.14.1"): None,
    ("0.5.23", "2.11.0"): "pip install torch==2.14.0",
}


@pytest.mark.parametrize(("pair", "words"), PAIRS.items(), ids=map("-".join, PAIRS))
def test_the_releases_that_go_together(pair: tuple[str, str], words: str | None) -> None:
    found = activation.wrong_versions(*pair)
    assert found is words or (words and found and words in found)


@pytest.mark.sglang
def test_sglang_has_the_facts(sglang_path: str, release: releases.Release) -> None:
    assert seam_facts.facts(Path(sglang_path), release) == []

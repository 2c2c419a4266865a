"""`make vllm-diff`: the facts that are kept of each release, and what the command says of another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from adapters.vllm.tests.facts import __main__ as command
from adapters.vllm.tests.facts import reading
from vllm_flagos import releases

pytestmark = pytest.mark.host
RELEASES = {one.minor: one for one in releases.RELEASES}
# A library, and a source that the build of the wheel takes from FlashAttention.
OF_THE_WHEEL = {"vllm_flash_attn._vllm_fa3_C", "vllm_flash_attn.ops.triton.rotary"}
OF_EMPTY_CONTEXTS = {  # which one of the releases has
    "v1.attention.ops.triton_merge_attn_states: mask_empty_context",
    "model_executor.layers.attention.mla_attention: mask_empty_context",
}
_CHOICE = "model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe"
OF_FORMER_EXPERTS = {f"{_CHOICE}: check_moe_marlin_supports_layer"}  # which 0.33 does not ask for


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_the_table_of_releases_is_what_their_sources_say(release: releases.Release) -> None:
    kept = command.kept(release.minor)
    for module, paths in release.kernels.items():
        for path, operator in paths.items():
            assert kept[f"kernel {module}: {path}"] == operator
    assert kept["parser of `vllm serve`"] == release.parser
    assert kept["warm-up of the first runner"] == str(release.first_runners_warm_up)
    assert kept["experts with a mask of padding"] == str(release.masks_padding)
    assert kept["weights of integers with rows in any order"] == str(release.rows_in_any_order)
    assert kept["graphs that end at layers with states"] == str(release.states_end_graphs)
    for name in OF_EMPTY_CONTEXTS:
        assert (f"vllm.{name}" in kept) == release.masks_empty_contexts
    assert releases.minor(kept["pin torch"]) == release.torch


@pytest.mark.parametrize("release", RELEASES)
def test_every_name_that_the_adapter_uses_is_in_each_release(release: str) -> None:
    """Fails where the adapter uses another name than before: `make vllm-facts` reads the releases again."""
    kept = command.kept(release)
    used = {module + (f": {name}" if name else "") for module, name in reading.used()}
    used -= set() if RELEASES[release].masks_empty_contexts else OF_EMPTY_CONTEXTS
    used -= OF_FORMER_EXPERTS if release == "0.33" else set()
    assert {name for name in used - OF_THE_WHEEL if f"vllm.{name}" not in kept} == set()


SOURCES = {
    "vllm/platforms/__init__.py": "",
    "vllm/platforms/interface.py": "class Platform:\n    def set_device(cls, device): ...\n",
    "vllm/plugins/__init__.py": "PLATFORM_PLUGINS_GROUP = 'vllm.platform_plugins'\n",
    "vllm/config/parallel.py": "class ParallelConfig:\n    nnodes: int = 1\n",
    "vllm/config/cache.py": "CacheDType = Literal['auto', 'tiny']\n",
    "vllm/entrypoints/somewhere/cli_args.py": "def make_arg_parser(parser): ...\n",
    "vllm/model_executor/warmup/some.py": "def warm_v1_block_table_kernels(device, tokens): ...\n",
    "vllm/v1/worker/block_table.py": (
        "class SlotMapper:\n    @staticmethod\n    @triton.jit\n    def kernel(a): ...\n"
        "@triton.jit\ndef _compute_slot_mapping_kernel(a, B): ...\n"
        "def compute(): _compute_slot_mapping_kernel[(1,)](2)\n"
    ),
    "vllm/v1/sample/rejection_sampler.py": (
        "@triton.jit\ndef expand_kernel(a): ...\n@dispatcher(kernel=expand_kernel)\ndef _expand(a): ...\n"
    ),
    "vllm/v1/worker/gpu_worker.py": (
        "class Worker(Base):\n    def init_device(self, more=1):\n        torch.cuda.Stream()\n"
    ),
    "csrc/torch_bindings.cpp": 'ops.def(\n  "rms_norm(Tensor! result, "\n  "Tensor input) -> ()");\n',
    "requirements/cuda.txt": "torch==2.99.0\n",
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A release that has little."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_is_read_of_sources(sources: Path) -> None:
    facts = reading.read(sources)
    assert facts["operator rms_norm"] == "rms_norm(Tensor! result, Tensor input) -> ()"
    assert facts["platform set_device"] == "(cls, device)"
    assert facts["config ParallelConfig.nnodes"] == "int"
    assert "choice CacheDType tiny" in facts
    assert facts["method Worker.init_device"].startswith("(self, more=1) ")
    assert facts["torch.cuda in v1.worker.gpu_worker"] == "Stream"
    assert reading.release(sources, "9.1.2") == releases.Release(
        tried="9.1.2",
        torch="2.99",
        kernels={
            "v1.worker.block_table": {"_compute_slot_mapping_kernel": "slot_mapping"},
            "v1.sample.rejection_sampler": {"_expand.kernel": "expand_to_tokens"},
        },
        first_runners_warm_up=("model_executor.warmup.some", "warm_v1_block_table_kernels"),
        parser="entrypoints.somewhere.cli_args",
    )


def test_a_body_that_changed_is_a_change(sources: Path) -> None:
    before = reading.read(sources)
    file = sources / "vllm/v1/worker/gpu_worker.py"
    file.write_text(file.read_text().replace("Stream()", "Event()"))
    reading.forget()
    changed = command.changes(before, reading.read(sources))
    assert [key for _, key, *_ in changed] == [
        "method Worker.init_device",
        "torch.cuda in v1.worker.gpu_worker",
    ]


def test_the_command(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["0.33.9", "--sources", str(sources)]) == 1
    shown = capsys.readouterr().out
    assert "vLLM 0.33.9 beside 0.33:" in shown
    assert "  - platform get_attn_backend_cls" in shown and "  + choice CacheDType tiny" in shown
    ast.parse(shown[shown.index("Release(") :])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["newest"], "'newest' is no release: write a number such as 0.33.0"),
        (["0.33.0", "--sources", "/nowhere"], "has no vllm/platforms"),
        (["0.33.0", "--against", "0.27"], "--against takes one of 0.26, 0.33"),
    ],
)
def test_what_the_command_refuses(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert words in " ".join(capsys.readouterr().err.split())

"""Megatron's modules are changed where they say `cuda`, and nowhere else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flagos_trainers import releases
from flagos_trainers.megatron import names, places, retarget

CHANGED = {
    "torch.cuda.synchronize()": ("torch.flagos.synchronize()", {"torch.cuda.synchronize": 1}),
    "torch.cuda.CUDAGraph()": ("_flagos_names.CUDAGraph()", {"torch.cuda.CUDAGraph": 1}),
    "torch.cuda.nvtx.range_pop()": ("_flagos_names.nvtx.range_pop()", {"torch.cuda.nvtx": 1}),
    "getattr(torch.cuda, name)": ("getattr(torch.flagos, name)", {"torch.cuda": 1}),
    "x.cuda(non_blocking=True)": ("x.flagos(non_blocking=True)", {".cuda()": 1}),
    "x.y.is_cuda": ("x.y.is_flagos", {"is_cuda": 1}),
    "f('cuda', 'cuda:1', 'cuda_x')": ("f('flagos', 'flagos:1', 'cuda_x')", {"device": 2}),
    "f(f'cuda:{n}')": ("f(f'flagos:{n}')", {"device": 1}),
    "x.type() == 'torch.cuda.HalfTensor'": ("x.type() == 'torch.flagos.HalfTensor'", {"type": 1}),
    "g(backend='nccl')": ("g(backend='flagos')", {"nccl": 1}),
    "from torch.cuda import device as d": (
        "from flagos_trainers.megatron.names import device as d",
        {"import torch.cuda.device": 1},
    ),
    "import torch.cuda.nvtx as n": (
        "from torch_fl.cuda_names import nvtx as n",
        {"import torch.cuda.nvtx": 1},
    ),
    "import torch.cuda": ("import torch", {"import torch.cuda": 1}),
}
LEFT = ["'cuda'", "a.torch.cuda_x", "import torch.cudagraphs", "from .cuda import x", "'uses cuda'"]


@pytest.mark.parametrize("source", CHANGED)
def test_a_place_is_changed_and_counted(source: str) -> None:
    expected, counts = CHANGED[source]
    tree, found = retarget.retargeted(source, "a.py")
    assert ast.unparse(tree) == expected and dict(found) == counts


@pytest.mark.parametrize("source", LEFT)
def test_other_texts_stay(source: str) -> None:
    tree, found = retarget.retargeted(source, "a.py")
    assert ast.unparse(tree) == ast.unparse(ast.parse(source)) and not found


def test_lines_keep_their_numbers() -> None:
    tree, _ = retarget.retargeted(
        "\n\nimport torch.cuda.nvtx as n\n\nx = torch.cuda.device_count()\n", "a.py"
    )
    assert [node.lineno for node in tree.body] == [3, 5]


@pytest.mark.parametrize(
    ("package", "release"),
    [(package, of) for package, served in releases.RETARGETED.items() for of in served.values()],
)
def test_every_name_of_a_table_has_a_counterpart_or_an_error(package: str, release: str) -> None:
    table, prefix = places.of(package, release) or {}, "torch.cuda."
    kinds = [kind for counts in table.values() for kind in counts]
    used = {kind.removeprefix(prefix).split(".")[0] for kind in kinds if kind.startswith(prefix)}
    device = torch.flagos  # type: ignore[attr-defined]
    assert len(used) > 20
    assert {name for name in used - names.SPECIAL if not hasattr(device, name)} == set()


def test_what_only_cuda_has_says_so() -> None:
    with pytest.raises(
        AttributeError, match=r"torch\.cuda\.cudart has no counterpart.*--use-pytorch-profiler"
    ):
        names.cudart()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="--use-nccl-ub"):
        names.CUDAPluggableAllocator("a.so", "f", "g")


def test_the_command_lists_places_and_refuses_other_folders(tmp_path: Path) -> None:
    def flagos(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flagos", "trainers", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    listed = flagos("places", str(Path(__file__).with_name("seam")))
    assert "megatron.core\n" in listed.stdout and "1 torch.cuda.CUDAGraph" in listed.stdout
    refused = flagos("places", str(tmp_path))
    assert refused.returncode == 1 and "no checkout of Megatron-LM-FL" in refused.stderr
    (file := tmp_path / "a.json").write_text('{"aio": {"use_gds": true}}')
    judged = flagos("check", "--deepspeed", str(file))
    assert judged.returncode == 1 and "aio.use_gds: GPUDirect Storage" in judged.stdout
    file.write_text("{")
    assert "is no JSON" in flagos("check", "--deepspeed", str(file)).stderr

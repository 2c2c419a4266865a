"""Artifacts of compiled graphs, and operators for flagos alone inside them, as vLLM has both.

Over CUDA a graph is renamed to it. On the host vendor the script has it renamed to the CPU in the same way.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("generated_code", "aliases")

SCRIPT = """
import sys

import torch
import torch_fl
import torch._inductor.compile_fx
from torch._inductor import CompiledArtifact, standalone_compile
from torch_fl.cuda import compile as over_cuda, lent_kernels

if torch.flagos.get_device_properties(0).vendor == "host":
    over_cuda._cuda = lambda device: torch.device("cpu")
    lent_kernels._KEY = torch._C.DispatchKey.CPU
    over_cuda.register()

DEFINED = {defined}
seen = []

if DEFINED:
    library = torch.library.Library("artifact_test", "DEF")
    library.define("add_doubled(Tensor x, Tensor(a!) into) -> Tensor")

    def add_doubled(x, into):
        seen.append((x.device.type, into.device.type))
        into.add_(x * 2)
        return x + 1

    library.impl("add_doubled", add_doubled, "PrivateUse1")
    torch.library.register_fake("artifact_test::add_doubled", lambda x, into: torch.empty_like(x), lib=library)


def function(x, weight):
    y = torch.relu(x @ weight)
    into = torch.ones_like(y)
    more = torch.ops.artifact_test.add_doubled(y, into)
    return (more.sin() + into,)


def expected(x, weight):
    y = torch.relu(x @ weight)
    return (y + 1).sin() + 1 + y * 2


numbers = torch.Generator().manual_seed(1)
x, weight = (torch.randn(8, 8, generator=numbers).to("flagos") for _ in range(2))
if {loads}:
    result = CompiledArtifact.load(path={path!r}, format={form!r})(x, weight)[0]
else:

    def backend(graph, inputs):
        artifact = standalone_compile(graph, inputs, dynamic_shapes="from_graph", options={{}})
        artifact.save(path={path!r}, format={form!r})
        return artifact

    result = torch.compile(function, backend=backend, fullgraph=True)(x, weight)[0]
assert result.device == torch.device("flagos", 0), result.device
torch.testing.assert_close(result, expected(x, weight))
assert seen == [("flagos", "flagos")], seen
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["binary", "unpacked"])
def test_an_artifact_keeps_the_views_and_the_lent_kernels(run_python, tmp_path: Path, form: str):
    given = {"path": str(tmp_path / "artifact"), "form": form}

    def script(*, loads: bool, defined: bool = True) -> str:
        return SCRIPT.format(**given, loads=loads, defined=defined)

    for loads in (False, True):  # where code is loaded, nothing of it is in a cache
        cache = str(tmp_path / f"cache-{loads}")
        run_python(script(loads=loads), fresh=True, TORCHINDUCTOR_CACHE_DIR=cache)
    done = run_python(
        script(loads=True, defined=False),
        fresh=True,
        fails=True,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache-without"),
    )
    assert "calls artifact_test::add_doubled, which nothing has registered" in done.stderr

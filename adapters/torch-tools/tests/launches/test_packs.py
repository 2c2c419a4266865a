"""Kernel packs made on a machine without a GPU: programs for sm_90, and launches as Triton's launcher makes them."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.torch.tests.launcher import simulated
from torch_fl import launcher
from torch_fl.flaggems import pack_file
from torch_fl_tools.flaggems.packs import making
from torch_fl_tools.records import files
from torch_fl_tools.records.facts import Call, TensorFacts, contiguous

pytest.importorskip("triton", minversion="3.6")
if find_spec("flag_gems") is None:
    pytest.skip("FlagGems is not installed (make test-flaggems)", allow_module_level=True)

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("Triton interprets in this process", allow_module_level=True)


def facts(*shape: int, dtype: torch.dtype = torch.bfloat16) -> TensorFacts:
    return TensorFacts(dtype, shape, contiguous(shape))


CALLS = [
    Call("aten::gelu", (facts(64, 96),), {}),
    Call("aten::mm", (facts(128, 64), facts(64, 256)), {}),
    Call("aten::_softmax", (facts(32, 100, dtype=torch.float32), -1, False), {}),
    Call("aten::sum.dim_IntList", (facts(16, 2048, dtype=torch.float32), (1,)), {}),
]


def packed(folder: Path, *arguments: str, name: str = "a.flagospack") -> tuple[pack_file.Pack, Any]:
    record = folder / "calls.rec"
    files.write(record, CALLS)
    given = ["pack", "--for", "sm_90", "--record", str(record), "-o", str(folder / name), "--json"]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"{name}.triton")}
    done = subprocess.run(
        [sys.executable, "-m", "flagos", *given, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return pack_file.read(folder / name), json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packs")


@pytest.fixture(scope="module")
def pack(folder: Path) -> pack_file.Pack:
    found, report = packed(folder)
    assert report["left_out"] == {} and report["chip"] == "NVIDIA H200", report
    return found


@pytest.mark.slow
def test_every_call_is_compiled_for_the_chip(pack: pack_file.Pack) -> None:
    operators = pack.header["operators"]
    assert {name: one["rows"][1] for name, one in operators.items()} == dict.fromkeys(
        ("gelu", "mm", "_softmax", "sum.dim_IntList"), 2
    )
    assert (pack.header["arch"], pack.header["made"]) == (90, "without a device")
    for number in range(len(pack.header["kernels"])):
        image = pack.image(number)
        assert image[:4] == b"\x7fELF"
        assert image[48] == 90, "the flags of its header have the architecture"


@pytest.mark.slow
def test_the_same_calls_make_the_same_pack(pack: pack_file.Pack, folder: Path) -> None:
    again, _ = packed(folder, name="b.flagospack")
    assert again.digest == pack.digest


@pytest.mark.slow
def test_a_tuning_file_names_another_configuration(pack: pack_file.Pack, folder: Path) -> None:
    """`mm` by another of its configurations: another program, and the others as they were."""
    named = json.loads(json.dumps(pack.header["configurations"]))
    ((kernel, chosen),) = [(k, v) for k, v in named.items() if "mm_kernel" in k]
    ((key, config),) = chosen.items()
    other = next(one for one in configurations_of(kernel) if one != config)
    tuning = folder / "tuning.json"
    tuning.write_text(json.dumps({"configurations": {kernel: {key: other}}}))
    tuned, _ = packed(folder, "--tuning", str(tuning), name="tuned.flagospack")
    assert tuned.header["configurations"][kernel] == {key: other}
    assert tuned.calls("mm")[0].recording != pack.calls("mm")[0].recording
    assert launches_of(tuned.calls("gelu")[0].recording) == launches_of(
        pack.calls("gelu")[0].recording
    )
    again, _ = packed(folder, "--tuning", str(folder / "tuned.flagospack"), name="c.flagospack")
    assert again.digest == tuned.digest, "a pack names configurations too"


def configurations_of(kernel: str) -> list[dict[str, Any]]:
    """All configurations of a tuned kernel, asked of FlagGems in another process."""
    module, _, name = kernel.rpartition(".")
    program = f"""
import json
from torch_fl.flaggems import configurations, package
from torch_fl_tools.flaggems.packs import without_device
with without_device.chip_without_device(without_device.CHIPS[0]):
    import importlib
    package.load()
    entry = getattr(importlib.import_module({module!r}), {name!r})
    print(json.dumps([configurations.plain(one) for one in entry.fn.configs]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


TUNED = """
import json, torch
from torch_fl.flaggems import tables
from torch_fl_tools.flaggems import checker
from torch_fl_tools.flaggems.packs import making, tuning, without_device
from torch_fl_tools.records import files
from pathlib import Path

chip = without_device.CHIPS[0]
tables.assume(tables.shipped("verdicts", chip.name, "5.0.2"))
asked = []
# Each configuration is faster than the one before; the fourth is wrong.
times = iter(range(100, 0, -10))
tuning._once = lambda run: float(next(times))
judged = lambda self, call, number: asked.append(number) or ("STRICT" if number == 2 else "FAILED", "")
checker.Checker.judge = judged
calls = [call for call in files.read(Path(RECORD)) if call.op == "aten::mm"]
with without_device.chip_without_device(chip):
    maker = making.Maker(chip, tuned=4)
    with maker.launches_by_triton():
        maker.add("mm", calls, lambda call: None)
        left = next(times)
        maker.add("mm", calls, lambda call: None)
        again = making.choosing(2)
        with again as choice:
            making.implementations.function("mm")(*(torch.empty(f.shape, dtype=f.dtype) for f in calls[0].args))
print(json.dumps([asked, left, maker.made.configurations, choice.chosen, next(times)]))
"""


def test_the_fastest_configuration_that_is_right_is_taken(folder: Path) -> None:
    record = folder / "tuned.rec"
    files.write(record, CALLS)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "a.flagospack.triton")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TUNED.replace("RECORD", repr(str(record)))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    asked, left, made, third, later = json.loads(done.stdout.splitlines()[-1])
    assert asked == [3, 2] and left == 60, "four were measured"
    assert made == third
    assert later == 50, "a key that is known is not measured again"


# ---- beside Triton's own launcher, over the simulated driver


@pytest.fixture
def gems(driver: Any) -> Iterator[Any]:
    with simulated.flaggems() as found, simulated.any_memory():
        yield found


def launches_of(recording: tuple[int, ...]) -> list[list[int]]:
    """The words of every launch of a recording, without the handle."""
    places = making.launches(list(recording))
    return [list(recording[at + 1 : at + 13]) for at in places]


def test_launches_are_those_of_tritons_launcher(pack: pack_file.Pack, gems: Any) -> None:
    """Grid, block, cluster, shared memory, flags and the number of parameters, for the same shapes."""
    x = torch.randn(32, 100)
    run = {
        "_softmax": lambda: gems.softmax(x, -1),
        "gelu": lambda: gems.gelu(torch.randn(64, 96, dtype=torch.bfloat16)),
        "sum.dim_IntList": lambda: gems.sum_dim(torch.randn(16, 2048), [1]),
    }
    for name, call in run.items():
        report: list[dict[str, Any]] = []
        with launcher.recording(
            lambda kernel, grid, stream, args: report.append(  # noqa: B023
                launcher.describe(kernel, grid, args)
            )
        ):
            call()
        expected = [
            [
                *(one["grid"] + one["block"] + one["cluster"]),
                one["shared_bytes"],
                one["cooperative"] | one["pdl"] << 1,
                len(one["params"]),
            ]
            for one in report
        ]
        assert launches_of(pack.calls(name)[0].recording) == expected, name


def test_programs_have_their_functions_with_these_parameters(
    pack: pack_file.Pack, driver: Any
) -> None:
    cuda = simulated.library().cuda
    names = []
    for number, (_, _, name, _) in enumerate(pack.header["kernels"]):
        image = pack.image(number)
        text = ctypes.string_at(pack.address + name)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
        assert cuda.cuModuleGetFunction(ctypes.byref(function), module, text) == 0, text
        assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"no_kernel") != 0
        names.append(text.decode())
    assert any("softmax" in one for one in names) and any("mm" in one for one in names), names

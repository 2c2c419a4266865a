"""Kernel packs: the file, what refuses it, and calls that a process serves from one.

The packs here are of functions that fill memory with a number that no native kernel would give, so that results tell
who served a call. The programs of kernels for GPUs are in `adapters/torch-tools/tests/launches/test_packs.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.torch.tests.flaggems.conftest import of_the_tested_version
from torch_fl.flaggems import (
    implementations,
    pack_file,
    pack_in_use,
    package,
    sizes,
    table_file,
    tables,
)
from torch_fl_tools.flaggems.packs import command as packs_command
from torch_fl_tools.flaggems.packs import making, measuring, without_device
from torch_fl_tools.flaggems.recorded import classes
from torch_fl_tools.records import files
from torch_fl_tools.records.facts import DEVICE, Call, TensorFacts, contiguous

CHIP = without_device.CHIPS[0]


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    package.load_before_forking()


def facts(*shape: int, dtype: torch.dtype = torch.float32, **rest: Any) -> TensorFacts:
    return TensorFacts(dtype, shape, rest.pop("strides", contiguous(shape)), **rest)


def sevens(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 7)


def random(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x)


def on_host(x: torch.Tensor) -> torch.Tensor:
    torch.empty(3)
    return torch.full_like(x, 7)


NEG = Call("aten::neg", (facts(6, 7),), {})
STRIDED = Call("aten::neg", (facts(6, 7, strides=(16, 2), offset=4),), {})
TABLE = {"neg": {"verdict": "STRICT", "cases": 1, "first": None}}
TABLE |= {"zeros": TABLE["neg"]}


@pytest.fixture
def verified(tmp_path: Path) -> None:
    """`neg` and `zeros` are verified at the sizes of samples."""
    path = tmp_path / "verdicts.json"
    table_file.write(path, tables.table(TABLE))
    tables.assume(path)
    yield
    tables._assumed.clear()
    tables._table.cache_clear()


def made_of(*calls: Call) -> making.Made:
    maker = making.Maker(CHIP)
    for overload in dict.fromkeys(call.overload for call in calls):
        maker.add(overload, [call for call in calls if call.overload == overload], lambda _: None)
    return maker.made


def about(**changed: Any) -> dict[str, Any]:
    machine = dataclasses.asdict(pack_in_use.this_machine())
    return {
        **machine,
        "driver": 0,
        "arch": 0,
        "records": [],
        "made": "here",
        "triton": "",
        **changed,
    }


def written(path: Path, made: making.Made, **changed: Any) -> Path:
    pack_file.write(path, making.contents(made, about(**changed)))
    return path


@pytest.fixture
def pack(tmp_path: Path, verified: None, served_by: Any) -> Path:
    """A pack of `neg` for two calls, which answers with sevens."""
    served_by("neg", sevens)
    return written(tmp_path / "neg.flagospack", made_of(NEG, STRIDED))


# ---- what is packed


def test_calls_are_packed_with_and_without_gradients(pack: Path) -> None:
    read = pack_file.read(pack)
    calls = read.calls("neg")
    assert read.header["operators"]["neg"]["rows"][1] == len(calls) == 4
    assert calls == sorted(calls, key=lambda call: (len(call.signature), call.signature))
    assert len({call.signature for call in calls}) == 4
    assert all(call.signature[-1] == 0 and not call.kernels for call in calls)


def test_the_same_calls_make_the_same_file(pack: Path, tmp_path: Path) -> None:
    again = written(tmp_path / "again.flagospack", made_of(STRIDED, NEG))
    assert again.read_bytes() == pack.read_bytes()
    other = written(tmp_path / "other.flagospack", made_of(NEG))
    assert pack_file.read(other).digest != pack_file.read(pack).digest


@pytest.mark.parametrize(
    ("kernel", "given", "reason"),
    [
        (random, NEG, "aten.rand_like.default, which is not recorded"),
        (on_host, NEG, "empty without a device"),
        (lambda x: x, NEG, "FlagGems returns an argument"),
        (sevens, Call("aten::neg", (facts(100, 100),), {}), "it was not verified there: the sizes"),
        (sevens, Call("aten::neg", (facts(3, dtype=torch.float64),), {}), "not verified there: ordinary"),
    ],
    ids=["random", "host", "argument", "sizes", "type"],
)  # fmt: skip
def test_what_cannot_be_packed_is_left_out_with_the_reason(
    verified: None, served_by: Any, kernel: Any, given: Call, reason: str
) -> None:
    served_by("neg", kernel)
    made = made_of(given)
    assert not any(made.calls.values())
    assert reason in next(iter(made.left_out["neg"]))


def test_calls_that_name_the_device_are_packed_as_programs_name_it(
    verified: None, served_by: Any
) -> None:
    served_by("zeros", lambda size, *, dtype, device, **_: torch.full(size, 7, dtype=dtype, device=device))  # fmt: skip
    made = made_of(Call("aten::zeros", ((2, 3),), {"dtype": torch.float32, "device": DEVICE}))
    assert len(made.calls["zeros"]) == 4, made.left_out


def test_places_of_handles_are_found_behind_every_kind_of_step() -> None:
    place = [0, 0, 6, 2, 3, 4, 2, 4, 1]
    fill, copy = [1, *place, 0, 5], [2, *place, *place]
    launch = [0, 77, *range(9), 1024, 0, 3]
    launch += [4, 0, 5, 8, 1, 0, 16]  # a constant and a pointer
    launch += [128, 2, 0, 0, 9, 2, *range(6), 3, 0]  # a tensor map of two dimensions
    words = [1, 64, 4, *fill, *launch, *copy, *launch, 1, 0]
    assert [words[at] for at in making.launches(words)] == [77, 77]


# ---- what is refused


def test_a_pack_is_opened_where_it_was_made_for(pack: Path) -> None:
    assert pack_in_use.opened(pack).digest == pack_file.read(pack).digest


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"chip": "NVIDIA H100"}, "it was made for the chip NVIDIA H100, and here is"),
        ({"vendor": "cuda"}, "it was made for devices of vendor cuda, and here is host"),
        ({"flaggems": "4.0"}, f"it was made for FlagGems 4.0, and here is {package.version()}"),
        ({"torch": "2.5.0+cu121"}, "it was made for torch 2.5.0, and here is 2."),
        ({"driver": 13000}, "need a driver for CUDA 13.0, and this one takes up to 0.0"),
    ],
)
def test_a_pack_of_another_machine_is_refused(
    pack: Path, verified: None, served_by: Any, changed: dict[str, Any], reason: str
) -> None:
    served_by("neg", sevens)
    path = written(pack.with_name("other"), made_of(NEG), **changed)
    with pytest.raises(pack_file.BrokenPack, match="make one for this machine") as refused:
        pack_in_use.opened(path)
    assert reason in str(refused.value)


def test_a_truncated_or_altered_pack_is_refused(pack: Path) -> None:
    whole = pack.read_bytes()
    for size in (0, 7, 47, 48, 100, len(whole) - 1):
        pack.write_bytes(whole[:size])
        with pytest.raises(pack_file.BrokenPack):
            pack_file.read(pack)
    for place in (16, 60, len(whole) // 2, len(whole) - 1):
        altered = bytearray(whole)
        altered[place] ^= 1
        pack.write_bytes(altered)
        with pytest.raises(pack_file.BrokenPack, match="truncated or altered"):
            pack_file.read(pack)
    pack.write_bytes(whole)
    pack_file.read(pack)


def test_other_files_are_no_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pack_file.BrokenPack, match="cannot be read: No such file"):
        pack_file.read(tmp_path / "none")
    (tmp_path / "text").write_text("a text of more than fifty bytes, which is no pack at all")
    with pytest.raises(pack_file.BrokenPack, match="is no kernel pack"):
        pack_file.read(tmp_path / "text")
    monkeypatch.setattr(pack_file, "FORMAT", 99)
    pack_file.write(tmp_path / "newer", pack_file.Contents({}))
    monkeypatch.undo()
    with pytest.raises(
        pack_file.BrokenPack, match="a pack of format 99, and this flagos reads format 1"
    ):
        pack_file.read(tmp_path / "newer")


def test_places_outside_of_the_file_are_refused_by_the_reader(pack: Path) -> None:
    read = pack_in_use.opened(pack)
    words = read.nbytes // 8
    for rows in ([words - 6, 1, 0], [0, 1 << 40, 0], [-1, 1, 0]):
        with pytest.raises(RuntimeError, match="outside of its"):
            torch.ops.flagos.attach_kernel("aten::neg", 1, "test", True, [], packed=rows)
    for kernel in ([read.nbytes, 1, 0, 0], [0, read.nbytes + 1, 0, 0], [0, 1, read.nbytes, 0]):
        with pytest.raises(RuntimeError, match="outside of its"):
            torch.ops.flagos.use_pack(read.address, read.nbytes, kernel)


# ---- programs with a pack

PROGRAM = """
import json, sys, torch, torch_fl
from torch_fl import replay

x = torch.arange(42.0).reshape(6, 7).to("flagos")
strided = torch.arange(128.0)[1:].as_strided((6, 7), (16, 2)).to("flagos")
small = torch.arange(4.0).reshape(2, 2).to("flagos")
shown = [x.neg().cpu().tolist()[5] for _ in range(3)]
with torch.no_grad():
    shown.append(x.neg().cpu().tolist()[5])
outside = small.neg().cpu().tolist()
known = replay.statistics().get("aten::neg")
counted = torch_fl.counters()["aten::neg"]
print(json.dumps({
    "packed": shown, "outside": outside, "replays": known and known.packed_replays,
    "fallbacks": counted["fallbacks"], "calls": counted["calls"],
    "imported": [name for name in ("flag_gems", "triton") if name in sys.modules],
    "explained": str(torch_fl.explain("neg")),
}))
"""
SEVENS = [7.0] * 7
NEGATED = [float(-value) for value in range(35, 42)]


def run(
    tmp_path: Path,
    pack: Path | None,
    policy: str = "verified",
    fails: bool = False,
    table: dict[str, Any] = TABLE,
    **more: str,
) -> Any:
    folder = tmp_path / "data" / "flagos"
    path = folder / tables.file_name("verdicts", tables.chip(), package.version())
    table_file.write(path, tables.table(table))
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "FLAGOS_FLAGGEMS": policy}
    environment |= {"FLAGOS_PACK": str(pack) if pack else "", **more}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if fails:
        assert done.returncode != 0, done.stdout
        return done.stderr
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_program_is_served_from_the_pack_without_flaggems(tmp_path: Path, pack: Path) -> None:
    report = run(tmp_path, pack)
    assert report["packed"] == [SEVENS] * 4
    assert report["replays"] == 4 and report["calls"] == 5
    assert report["imported"] == []
    assert f"its signature is one of 4 of the pack {pack}" in report["explained"]


@pytest.mark.slow
def test_calls_that_are_not_in_the_pack_go_to_the_native_kernel_and_are_counted(
    tmp_path: Path, pack: Path
) -> None:
    report = run(tmp_path, pack)
    assert report["outside"] == [[-0.0, -1.0], [-2.0, -3.0]] and report["fallbacks"] == 1
    said = run(tmp_path, pack, fails=True, FLAGOS_STRICT="1")
    assert "the call is not in the pack" in said


@pytest.mark.slow
def test_calls_of_the_pack_are_verified_where_this_table_knows_smaller_ones(
    tmp_path: Path, pack: Path
) -> None:
    """The table by which it was made knew more sizes, but none that this one knows to be wrong."""
    two = Call("aten::neg", (facts(2),), {})
    narrow = TABLE["neg"] | {"sizes": sizes.to_table("neg", sizes.union([classes.of(two)]))}
    assert run(tmp_path, pack, table={"neg": narrow})["packed"] == [SEVENS] * 4
    jit = run(tmp_path, pack, table={"neg": narrow}, FLAGOS_PACK_OUTSIDE="jit")
    assert jit["packed"] == [NEGATED] * 4, "FlagGems serves too, within its sizes"
    beyond = narrow | {"beyond": "neg(float32[3]): wrong"}
    report = run(tmp_path, pack, table={"neg": beyond})
    assert report["packed"] == [NEGATED] * 4 and report["fallbacks"] == 5


@pytest.mark.slow
def test_flaggems_serves_them_if_it_is_asked_to(tmp_path: Path, pack: Path) -> None:
    report = run(tmp_path, pack, FLAGOS_PACK_OUTSIDE="jit")
    assert report["packed"] == [SEVENS] * 4 and report["replays"] == 4
    assert report["outside"] == [[-0.0, -1.0], [-2.0, -3.0]]
    assert (report["fallbacks"], report["imported"]) == (0, ["flag_gems", "triton"])
    assert "expected one of native, jit" in run(
        tmp_path, pack, fails=True, FLAGOS_PACK_OUTSIDE="no"
    )


@pytest.mark.slow
def test_without_the_pack_flaggems_serves(tmp_path: Path, pack: Path) -> None:
    report = run(tmp_path, None)
    assert report["packed"] == [NEGATED] * 4 and "flag_gems" in report["imported"]


def test_a_pack_serves_nothing_by_default(tmp_path: Path, pack: Path) -> None:
    report = run(tmp_path, pack, policy="off")
    assert report["packed"] == [NEGATED] * 4 and report["replays"] is None
    routed = run(tmp_path, pack, policy="off", FLAGOS_OP_neg="flaggems")
    assert routed["packed"] == [SEVENS] * 4, "but a route to FlagGems takes it"


@pytest.mark.slow
def test_replays_of_a_pack_can_be_checked(tmp_path: Path, pack: Path) -> None:
    """FlagGems does not answer with sevens, which is noticed."""
    said = run(tmp_path, pack, fails=True, FLAGOS_VERIFY_REPLAYS="1")
    assert "a replay of aten::neg differs from its implementation (flaggems)" in said


def test_a_pack_that_is_refused_ends_the_program(tmp_path: Path, pack: Path) -> None:
    pack.write_bytes(pack.read_bytes()[:-8])
    assert "truncated or altered" in run(tmp_path, pack, fails=True)


@pytest.mark.slow
def test_auto_takes_calls_that_were_measured_to_be_faster(tmp_path: Path, pack: Path) -> None:
    read = pack_file.read(pack)
    calls = read.calls("neg")
    about = {name: v for name, v in read.header.items() if name not in ("format", "kernels")}
    about["operators"] = {"neg": {"verified": TABLE["neg"], "function": "neg"}}

    def rewritten(name: str, faster: tuple[bool, ...]) -> Path:
        changed = [dataclasses.replace(c, faster=f) for c, f in zip(calls, faster, strict=True)]
        path = tmp_path / name
        pack_file.write(path, pack_file.Contents(about, calls={"neg": changed}))
        return path

    of_shape = tuple(call.signature[4:6] == (7, 1) for call in calls)
    assert sorted(of_shape) == [False, False, True, True]
    report = run(tmp_path, rewritten("faster", of_shape), policy="auto")
    assert report["packed"] == [SEVENS] * 4 and report["fallbacks"] == 1
    assert "one of 2 of the pack" in report["explained"]
    others = tuple(not one for one in of_shape)
    report = run(tmp_path, rewritten("others", others), policy="auto")
    assert report["packed"] == [NEGATED] * 4 and report["fallbacks"] == 1, "slower is no fallback"
    report = run(tmp_path, rewritten("none", (False,) * 4), policy="auto")
    assert report["packed"] == [NEGATED] * 4 and report["fallbacks"] == 0
    assert "measured slower than the native kernel in all calls of the pack" in report["explained"]


def test_faster_means_no_slower_on_device_and_host() -> None:
    faster = measuring.Times(9, 10, 10, 10)
    assert faster.faster
    for slower in ((9, 11, 10, 10), (11, 9, 10, 10), (10, 10, 10, 10)):
        assert not measuring.Times(*map(float, slower)).faster


# ---- the command


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = [sys.executable, "-m", "flagos", "pack", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(given, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "name the chip, as in `flagos pack --for sm_90`"),
        (("--for", "sm_1"), "'sm_1' is no chip that is known here: 'NVIDIA H200' (sm_90)"),
        (("--for", "sm_90", "--ops", "nothing"), "none is of an overload that matches 'nothing'"),
        (
            ("--for", "sm_90", "--tuning", "/dev/null"),
            "JSON with the `configurations` that `flagos pack --show PACK",
        ),
        (("--for", "sm_90", "--verdicts", "/none"), "/none is no file"),
        (("--for", "sm_90", "-o", "/none/x"), "/none is no folder"),
        (("--for", "sm_90", "-o", "."), ". is a folder"),
        (("--for", "sm_90", "-o", ""), ". is a folder"),
        (("--for", "sm_90"), "TRITON_INTERPRET has Triton interpret kernels"),
        (("--for", "NVIDIA H100 80GB HBM3"), "TRITON_INTERPRET has Triton interpret kernels"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_compiled(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    record = tmp_path / "a.rec"
    files.write(record, [NEG])
    done = command("--record", str(record), *arguments)
    assert done.returncode == 1 and reason in done.stderr, done.stderr


@of_the_tested_version()
def test_a_chip_without_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "_assumed", {})
    target, none = without_device.chip("NVIDIA H100 80GB HBM3"), argparse.Namespace(verdicts=None)
    packs_command._take_tables(none, target)
    assert tables.verdicts()["silu"]["verdict"] == table_file.STRICT, "the H200's"
    monkeypatch.setattr(tables, "SHIPPED", tmp_path)
    with pytest.raises(RuntimeError, match="no table of verdicts for NVIDIA H100 80GB HBM3"):
        packs_command._take_tables(none, target)
    tables._table.cache_clear()


def test_calls_and_their_signatures_are_counted(pack: Path, served_by: Any) -> None:
    served_by("neg", sevens)
    made, read = made_of(NEG, STRIDED), pack_file.read(pack)
    contents = pack_file.Contents(read.header, calls={"neg": made.calls["neg"]})
    report = packs_command._summary(pack, "", made, contents, 1)
    assert (report["calls"], report["signatures"]) == (2, 4)


@pytest.mark.slow
def test_a_pack_tells_of_itself(pack: Path) -> None:
    done = command("--show", str(pack))
    assert done.returncode == 0
    assert (
        "neg: 4 signatures; STRICT (neg)" in done.stdout and "it fits this machine" in done.stdout
    )
    report = json.loads(command("--show", str(pack), "--json").stdout)
    assert report["sha256"] == pack_file.read(pack).digest and report["refused_here"] is None
    assert implementations.registered()["neg"] == "neg"
    assert pack_in_use.in_use() is None

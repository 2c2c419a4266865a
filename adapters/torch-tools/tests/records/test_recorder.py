"""`flagos record`: facts about calls, on any device, without data; files; whole programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import _foreach_supported_types as of_optimizers

import torch_fl  # noqa: F401
from flagos.cli.output import CommandError
from torch_fl_tools.records import command, facts, files
from torch_fl_tools.records.facts import BrokenRecord, Call, TensorFacts
from torch_fl_tools.records.recorder import record


def calls_of(program: Any, path: Path, **options: Any) -> dict[str, list[Call]]:
    with record(path, **options):
        program()
    found: dict[str, list[Call]] = {}
    for call in files.read(path):
        found.setdefault(call.overload, []).append(call)
    return found


def one_step(device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.rand(4, 3, 8).to(device)
    for _ in range(2):
        with torch.autocast(device, torch.bfloat16):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("device", ["cpu", "flagos"])
@pytest.mark.parametrize("meta", [False, True])
def test_a_step_is_recorded_on_any_device(tmp_path: Path, device: str, meta: bool) -> None:
    found = calls_of(lambda: one_step(device), tmp_path / "a.rec", meta=meta)
    (forward,) = found["native_layer_norm"]
    kind = "bfloat16" if device == "cpu" else "float32"  # autocast differs
    assert [str(one) for one in forward.tensors()] == [f"{kind}[4,3,6]", "float32[6]", "float32[6]"]
    assert forward.count == 2 and forward.autocast == "bfloat16" and forward.args[1] == (6,)
    (backward,) = found["native_layer_norm_backward"]
    assert backward.autocast is None and backward.tensors()[0].strides == (0, 0, 0)
    assert found["addmm"][0].tensors()[0].dtype == torch.bfloat16
    assert found["addcdiv_"], "the optimizer's"
    assert all("view" not in name and "transpose" not in name for name in found)


def test_a_model_of_any_size_is_recorded_without_memory(tmp_path: Path) -> None:
    """A terabyte of weights."""

    def large() -> None:
        with torch.device("flagos"):
            layer = nn.Linear(500_000, 500_000, dtype=torch.bfloat16)
            assert layer(torch.randn(4096, 500_000, dtype=torch.bfloat16)).sum().item() == 1

    found = calls_of(large, tmp_path / "a.rec", meta=True)
    assert found["addmm"][0].tensors()[2].shape == (500_000, 500_000)


def test_what_a_kernel_can_see_is_kept(tmp_path: Path) -> None:
    base = torch.arange(24.0)

    def calls() -> None:
        x = base[1:13].view(3, 4).t()
        torch.add(x, x, alpha=0.5)
        torch.mul(base[:4], base[2:6], out=base[8:12])
        torch.embedding(torch.rand(9, 2), torch.tensor([7, 3]))
        torch.clamp(base, float("-inf"), None)
        torch.cat([base[:2], base[6:7]])

    found = calls_of(calls, tmp_path / "a.rec")
    (add,) = found["add.Tensor"]
    x, y = add.tensors()
    assert (x.shape, x.strides, x.offset, x.extent) == ((4, 3), (1, 4), 4, 48)
    assert x.memory == y.memory == (0, 4), "they are one"
    assert add.kwargs == {"alpha": 0.5}
    (mul,) = found["mul.out"]
    assert [one.memory for one in mul.tensors()] == [(0, 0), (0, 8), (0, 32)]
    (embedding,) = found["embedding"]
    assert embedding.tensors()[1].range == (3, 7)
    assert found["clamp"][0].args[1:] == (float("-inf"),)
    assert [one.shape for one in found["cat"][0].tensors()] == [(2,), (1,)]


def test_numbers_that_change_are_one_call_and_data_is_in_no_record(tmp_path: Path) -> None:
    secret = 0.123456789

    def calls() -> None:
        for step in (1.5, 2.5, 3.5):
            torch.full((3,), secret).add_(torch.ones(3), alpha=step)
        torch.ones(3).add_(torch.ones(3), alpha=1.0)

    path = tmp_path / "a.rec"
    found = calls_of(calls, path)
    assert [call.count for call in found["add_.Tensor"]] == [3, 1], "1 is a number of its own kind"
    data = torch.rand(50, dtype=torch.float64)
    calls_of(lambda: data.exp(), path)
    assert not any(str(number)[:8] in path.read_text() for number in data.tolist())


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    tensor = TensorFacts(torch.float16, (2, 3), (1, 2), 6, (1, 32), None, True)
    whole = TensorFacts(torch.int64, (0,), (1,), range=None)
    args = (
        tensor,
        (whole, None),
        3,
        True,
        1.5,
        float("inf"),
        1 + 2j,
        "tanh",
        torch.bfloat16,
        facts.DEVICE,
    )
    given = Call(
        "aten::some.overload", args, {"memory_format": torch.channels_last}, 5, "float16", True
    )
    for name in ("a.rec", "a.rec.gz"):
        files.write(tmp_path / name, [given])
        assert files.read(tmp_path / name) == [given]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "a call is an object"),
        ("{", "it is no JSON"),
        ('{"op":"add"}', "such as aten::add.Tensor"),
        ('{"op":"aten::add","args":3}', "`args` is a list"),
        ('{"op":"aten::add","count":0}', "`count` is a positive number"),
        ('{"op":"aten::add","args":[{"t":"float33[2]"}]}', "a tensor is like float32[8,256,768]"),
        ('{"op":"aten::add","args":[{"t":"float32[2,x]"}]}', "a tensor is like float32[8,256,768]"),
        ('{"op":"aten::add","args":[{"t":"float32[-2]"}]}', "a dtype of torch, and a stride"),
        ('{"op":"aten::add","args":[{"t":"add[2]"}]}', "a dtype of torch, and a stride"),
        ('{"op":"aten::add","args":[{"t":"float32[2]","s":[1,2]}]}', "a stride for each size"),
        ('{"op":"aten::add","args":[{"t":"float32[2]","o":3}]}', "a number of whole elements"),
        ('{"op":"aten::add","args":[{"dtype":"add"}]}', "a value is a tensor"),
        ('{"op":"aten::add","args":[{"what":1}]}', "a value is a tensor"),
        ('{"op":"aten::add","args":[{"float":1' + "0" * 400 + "}]}", "a value is a tensor"),
        ('{"op":"aten::add","args":[{"t":"float32[2]","s":[Infinity]}]}', "a tensor is like"),
        ('{"op":"aten::add","args":[{"t":"float32[8,99999999999999999999999]"}]}', "have 64 bits"),
        ('{"op":"aten::add","args":[{"t":"float32[4294967296,4294967296]"}]}', "have 64 bits"),
        ('{"op":"aten::add","args":[{"t":"int8[0]","r":[0,9223372036854775808]}]}', "have 64 bits"),
        ('{"op":"aten::add","args":[9223372036854775808]}', "a whole number has 64 bits"),
        ('{"op":"aten::add","autocast":{"a":1}}', "`autocast` is a dtype of torch"),
        ('{"op":"aten::add","autocast":"add"}', "`autocast` is a dtype of torch"),
        ("[" * 100_000, "its lists lie too deep in each other"),
        ('{"op":"aten::add","args":' + "[" * 900 + "]" * 900 + "}", "at most 8 lists lie in each"),
    ],
    ids=lambda given: given[:60],
)
def test_a_broken_record_is_told_with_the_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "a.rec"
    path.write_text(f'{{"flagos_record": 1}}\n{line}\n')
    with pytest.raises(BrokenRecord) as report:
        files.read(path)
    assert str(report.value).count("a.rec, line 2: ") == 1 and said in str(report.value)


def test_records_of_other_versions_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    for text, said in (
        ("", "is no record"),
        ("{}", "is no record"),
        ('{"flagos_record": 9}', "version 9, and this flagos reads 1"),
        ("\xff", "line 1: it is no JSON"),
    ):
        path.write_text(text)
        with pytest.raises(BrokenRecord, match=said):
            files.read(path)
    files.write(tmp_path / "b.rec.gz", [])
    path.write_bytes((tmp_path / "b.rec.gz").read_bytes()[:-9])
    with pytest.raises(BrokenRecord, match="is not whole"):
        files.read(path)
    files.write(tmp_path / "b.rec.gz", [Call("aten::some", tuple(range(300)), {})])
    whole = (tmp_path / "b.rec.gz").read_bytes()
    for place in range(10, len(whole) - 8):  # the body of the archive
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(BrokenRecord, match="is not whole"):
            files.read(path)


def test_a_record_that_grows_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.rec.gz"
    files.write(path, [Call("aten::some", tuple(range(300)), {})])
    monkeypatch.setattr(files, "LARGEST", 1 << 10)
    with pytest.raises(BrokenRecord, match="more than any record"):
        files.read(path)


_PROGRAM = """
import multiprocessing, os, signal, sys, threading, torch
from torch.utils.data import DataLoader

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, at):
        return torch.full((2,), at).sinh()

def call(name, times):
    for _ in range(times):
        getattr(torch.ones(2), name)()

def forked(name, end):
    if os.fork() == 0:
        call(name, 2)
        end(0)
    os.wait()

x = torch.rand(3, 4).to(sys.argv[1])
x.exp()
if "fork" in sys.argv:
    forked("cos", os._exit)
    forked("tan", sys.exit)
    child = threading.Thread(target=forked, args=("atan", os._exit))
    child.start()
    child.join()
if "workers" in sys.argv:
    started = multiprocessing.get_context("fork").Process(target=call, args=("acos", 3))
    started.start()
    started.join()
    for _ in DataLoader(Samples(), num_workers=2, multiprocessing_context="fork"):
        pass
if "compile" in sys.argv:
    def backend(graph, inputs):
        torch.ones(1).sinh()  # of the compiler
        return lambda *inputs: [inputs[0]]

    torch.compile(lambda x: x.cosh(), backend=backend)(torch.ones(2))
if "exit" in sys.argv:
    x.exp()
    os._exit(3)
if "child" in sys.argv:
    import subprocess
    subprocess.run([sys.executable, __file__, "cpu"])
if "handled" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
if "signalled" in sys.argv:
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(3)
"""


def run(
    tmp_path: Path, *arguments: str, options: tuple[str, ...] = ()
) -> tuple[int, dict[str, int]]:
    program, out = tmp_path / "program.py", tmp_path / "out.rec"
    program.write_text(_PROGRAM)
    command = [sys.executable, "-m", "flagos", "record", "-o", str(out), *options, "--"]
    done = subprocess.run(
        [*command, sys.executable, str(program), *arguments], timeout=120, capture_output=True
    )
    counts = {call.overload: call.count for call in files.read(out)} if out.exists() else {}
    return done.returncode, counts


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "flagos"])
def test_a_program_is_recorded_that_does_not_know_of_it(tmp_path: Path, device: str) -> None:
    for options in ((), ("--meta",)):
        status, counts = run(tmp_path, device, options=options)
        assert status == 3, "the program's own"
        assert counts["exp"] == 1 and counts["rand"] == 1


@pytest.mark.slow
def test_processes_are_recorded_together_and_those_that_are_killed(tmp_path: Path) -> None:
    status, counts = run(tmp_path, "cpu", "fork", "child")
    assert status == 3 and counts["exp"] == 1 + 1
    assert [counts[name] for name in ("cos", "tan", "atan")] == [2, 2, 2]
    assert counts["rand"] == 2, "what came before a fork counts once"
    status, counts = run(tmp_path, "cpu", "workers", "exit")
    assert status == 3 and counts["exp"] == 2
    assert counts["acos"] == 3 and counts["sinh"] == 4
    status, counts = run(tmp_path, "cpu", "killed")
    assert status == 128 + signal.SIGKILL and counts["exp"] == 1


@pytest.mark.slow
def test_a_program_compiles_as_without_the_recorder(tmp_path: Path) -> None:
    status, counts = run(tmp_path, "cpu", "compile")
    assert status == 3 and counts["exp"] == 1
    assert not counts.keys() & {"cosh", "sinh"}, "what was compiled, and what the compiler calls"


@pytest.mark.parametrize("device", ["cpu", "flagos"])
def test_optimizers_call_the_same_without_memory(tmp_path: Path, device: str) -> None:
    def train() -> None:
        model = nn.Linear(3, 2, device=device)
        for kind in (torch.optim.AdamW, torch.optim.SGD):
            optimizer = kind(model.parameters(), lr=0.1)
            model(torch.ones(4, 3, device=device)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    counts = [
        {name: [call.count for call in calls] for name, calls in found.items()}
        for found in (calls_of(train, tmp_path / "a.rec", meta=meta) for meta in (False, True))
    ]
    assert counts[0] == counts[1]
    assert ("_foreach_lerp_.Scalar" in counts[0]) == (device == "flagos")
    assert FakeTensor not in of_optimizers, "as it was"


@pytest.mark.slow
@pytest.mark.parametrize(("handled", "status"), [("", 128 + signal.SIGTERM), ("handled", 7)])
def test_signals_end_the_program_and_not_the_record(
    tmp_path: Path, handled: str, status: int
) -> None:
    """The program has `flagos record` sent SIGTERM, which gets it back."""
    ended, counts = run(tmp_path, "cpu", "signalled", handled)
    assert ended == status
    assert counts["exp"] == 1 and counts["rand"] == 1


def test_a_program_without_torch_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.rec"
    assert command.main(["-o", str(out), "--", sys.executable, "-S", "-c", ""]) == 1
    assert "imported no torch" in capsys.readouterr().err and not out.exists()
    assert command.main(["-o", str(out), "--", str(tmp_path / "nothing")]) == 127


def flagos(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flagos", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        timeout=120,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (".", ". is a folder"),
        ("", ". is a folder"),
        ("no/x.rec", "no is no folder"),
        ("/proc/x.rec", "/proc/x.rec cannot be written"),
        ("pipe", "pipe is no regular file"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_a_record_that_cannot_be_written_is_said_first(
    tmp_path: Path, out: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=said):
        command.main(["-o", out, "--", "touch", "ran"])
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    ("arguments", "both"),
    [
        (["--ops", "mm", "-o", "y.rec", "--", "true"], ("--ops", "--show")),
        (["--show", "f", "--", "true"], ("--show", "a program")),
        (["--show", "f", "--meta"], ("--show", "--meta")),
        (["--show", "f", "-o", "x.rec"], ("--show", "-o")),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    arguments: list[str], both: tuple[str, str]
) -> None:
    with pytest.raises(CommandError) as report:
        command.main(arguments)
    assert all(name in str(report.value) for name in both) and report.value.hint


def test_json_is_all_that_standard_output_has(tmp_path: Path) -> None:
    text = "import torch; torch.ones(3).exp(); print('said')"
    ended = flagos(tmp_path, "record", "--json", "-o", "a.rec", "--", sys.executable, "-c", text)
    assert json.loads(ended.stdout)["calls"] == 2 and "said" in ended.stderr
    ended = flagos(tmp_path, "record", "--json", "--", sys.executable, "-S", "-c", "print('said')")
    assert ended.returncode == 1 and "nothing was recorded" in json.loads(ended.stdout)["error"]


@pytest.mark.slow
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    files.write(tmp_path / "a.rec", [])
    program = ["--", sys.executable, "-c", "import torch; torch.ones(3)"]
    for arguments in (["--show", "a.rec"], ["--json", "-o", "b.rec", *program]):
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "flagos", "record", *arguments],
                cwd=tmp_path,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert ended.returncode == 1
        assert ended.stderr.splitlines() == [
            "error: cannot write: [Errno 28] No space left on device"
        ]


@pytest.mark.parametrize("arguments", [["record", "--show", "x"], ["pack", "--show", "x"]])
def test_a_device_that_cannot_be_loaded_is_one_error(tmp_path: Path, arguments: list[str]) -> None:
    ended = flagos(tmp_path, *arguments, FLAGOS_FLAGGEMS="bogus")
    assert ended.returncode == 1
    first, second = ended.stderr.splitlines()
    assert first.startswith(
        "error: the flagos device cannot be loaded: ValueError: FLAGOS_FLAGGEMS"
    )
    assert "flagos doctor" in second


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.rec"
    calls_of(lambda: torch.rand(2, 3).exp().neg(), path)
    assert command.main(["--show", str(path), "--ops", "exp"]) == 0
    assert "1 x exp(float32[2,3])" in capsys.readouterr().out
    assert command.main(["--show", str(path)]) == 0
    assert "1 x rand([2, 3], device=<device>, " in capsys.readouterr().out, "which is in no record"
    assert command.main(["--show", str(path), "--json"]) == 0
    assert [line["op"] for line in json.loads(capsys.readouterr().out)][1:] == [
        "aten::exp",
        "aten::neg",
    ]


def test_the_shipped_records_are_small_and_of_every_kind_of_model() -> None:
    from .programs import PROGRAMS

    shipped = {path.name.removesuffix(".rec.gz"): path for path in files.shipped()}
    assert set(shipped) == set(PROGRAMS), "python -m adapters.torch-tools.tests.records.programs"
    assert sum(path.stat().st_size for path in shipped.values()) < 1_000_000
    bert = [
        call
        for call in files.read(shipped["bert-train"])
        if call.overload == "native_layer_norm_backward"
    ]
    assert (8, 256, 768) in {call.tensors()[0].shape for call in bert}


@pytest.mark.parametrize("name", ["mlp-train", "bert-train"])
def test_a_shipped_record_is_what_its_program_calls(tmp_path: Path, name: str) -> None:
    from .programs import record as record_program

    path = tmp_path / "again.rec.gz"
    assert record_program(name, path) > 20
    shipped = next(one for one in files.shipped() if one.name.startswith(name))
    assert files.read(path) == files.read(shipped)

"""Recorded calls: red zones, configurations and sizes; `verify-on-use`; the conditions on sizes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.torch.tests.flaggems import kernels
from torch_fl.flaggems import envelope, package, sizes, table_file, tables
from torch_fl_tools.flaggems.recorded import classes, judging, ladder, sanitizer, verifying
from torch_fl_tools.flaggems.recorded.verifying import How
from torch_fl_tools.flaggems.verify import command as verify_command
from torch_fl_tools.flaggems.verify import entries, requirements
from torch_fl_tools.records import files
from torch_fl_tools.records.facts import Call, TensorFacts, contiguous


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    package.load_before_forking()


def facts(*shape: int, dtype: torch.dtype = torch.float32, **rest: Any) -> TensorFacts:
    return TensorFacts(dtype, shape, rest.pop("strides", contiguous(shape)), **rest)


def call(op: str, *args: Any, **kwargs: Any) -> Call:
    return Call(f"aten::{op}", args, kwargs)


ROOT = Path(__file__).resolve().parents[4]
NEG = call("neg", facts(6, 7))
STRIDED = call("neg", facts(6, 7, strides=(16, 2), offset=4))


@pytest.mark.parametrize(
    ("kernel", "given", "said"),
    [
        ("negated", NEG, ""),
        ("negated", STRIDED, ""),
        ("summed", call("sum", facts(5, 9)), ""),
        ("written_beyond", NEG, "writes outside the memory number 1 that it allocates, float32[6, 7]: 0 bytes after"),
        ("read_beyond", call("sum", facts(5, 9)), "reads beside its arguments"),
        ("unwritten", NEG, "reads beside its arguments, or what nobody wrote"),
        ("writes_its_argument", NEG, "writes to `self`, float32[6,7], which is only read"),
    ],
)  # fmt: skip
def test_red_zones(served_by: Any, kernel: str, given: Call, said: str) -> None:
    served_by(given.overload, getattr(kernels, kernel))
    found = judging.judge(given)
    assert found.verdict == (table_file.FAILED if said else table_file.STRICT), found
    assert said in found.why
    if kernel == "writes_its_argument":  # the control: without red zones it is not noticed
        assert judging.judge(given, red_zones=False).verdict == table_file.STRICT


def test_bytes_between_the_elements_of_a_view_are_red(served_by: Any) -> None:
    def fills_the_gaps(x: torch.Tensor) -> torch.Tensor:
        x.as_strided((1,), (1,), x.storage_offset() + 1).fill_(1)
        return x.neg()

    served_by("neg", fills_the_gaps)
    found = judging.judge(STRIDED)
    assert found.verdict == table_file.FAILED and "`self`" in found.why, found


def test_every_configuration(served_by: Any) -> None:
    served_by("neg", kernels.wrong_in_one_configuration)
    assert judging.judge(NEG).verdict == table_file.STRICT, "the first is right"
    found = judging.judge(NEG, every_config=True)
    assert found.verdict == table_file.FAILED and found.configurations == 2, found
    assert "by configuration 1: _tuned: BLOCK: 64" in found.why


def test_what_is_written_in_place_is_compared_and_the_rest_is_not_touched(served_by: Any) -> None:
    given = call("neg_", facts(6, 7, strides=(8, 1)))
    served_by("neg_", lambda x: x.copy_(-x))
    assert judging.judge(given).verdict == table_file.STRICT
    served_by("neg_", lambda x: [x.as_strided((48,), (1,)).neg_(), x][1])
    assert "writes outside `self`" in judging.judge(given).why


def test_of_equal_numbers_any_may_be_chosen(served_by: Any) -> None:
    given = call("argmax", facts(4, 3000, dtype=torch.bfloat16), 1)

    def last(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.shape[dim] - 1 - x.flip(dim).argmax(dim)

    x = torch.tensor([[1.0, 3.0, 3.0]])
    assert last(x, 1) == 2 != x.argmax(1)
    served_by("argmax", last)
    assert judging.judge(given).verdict == table_file.STRICT
    served_by("argmax", lambda x, dim: (x.argmax(dim) + 1) % x.shape[dim])
    assert judging.judge(given).verdict == table_file.FAILED
    served_by(
        "topk", lambda x, k, dim=-1: (x.topk(k).values, x.topk(k).indices[..., :1].expand(-1, k))
    )
    assert judging.judge(call("topk", facts(4, 30), 3)).verdict == table_file.FAILED


def test_a_sum_that_loses_digits_is_right_if_the_native_one_loses_as_many(served_by: Any) -> None:
    x, rows, weight = facts(2000, 16), facts(2000, 1), facts(16)
    mask = (False, True, True)
    given = call("native_layer_norm_backward", x, x, (16,), rows, rows, weight, weight, mask)
    native = torch.ops.aten.native_layer_norm_backward

    def by_halves(g: Any, x: Any, *rest: Any) -> Any:
        mean, rstd = rest[1], rest[2]
        parts = slice(1000), slice(1000, None)
        halves = [native(g[p], x[p], rest[0], mean[p], rstd[p], *rest[3:]) for p in parts]
        (_, dw, db), (_, dw2, db2) = halves
        return None, dw + dw2, db + db2

    served_by("native_layer_norm_backward", by_halves)
    assert judging.judge(given).verdict == table_file.STRICT
    served_by(
        "native_layer_norm_backward",
        lambda *a: [t if t is None else t * 1.001 for t in by_halves(*a)],
    )
    assert judging.judge(given).verdict == table_file.FAILED


def test_indices_stay_within_their_bounds() -> None:
    table, index = facts(5, 3), facts(4, 6, dtype=torch.int64)
    assert judging.judge(call("embedding", table, index)).verdict == table_file.STRICT
    assert (
        judging.judge(call("gather", facts(6, 4), 1, facts(6, 9, dtype=torch.int64))).verdict
        == table_file.STRICT
    )


def test_layer_norm_backward_of_three_dimensions_is_found() -> None:
    """FlagGems 5.0.2 takes the first dimension for the rows, and writes gradients of all others beyond the weight's."""
    fp32 = facts(2, 4, 8), facts(2, 4, 1), facts(8)
    x, rows, weight = fp32
    given = call(
        "native_layer_norm_backward", x, x, (8,), rows, rows, weight, weight, (True, True, True)
    )
    found = judging.judge(given)
    assert (
        found.verdict == table_file.FAILED and "it writes outside the memory number" in found.why
    ), found
    x, rows = facts(6, 8), facts(6, 1)
    given = call(
        "native_layer_norm_backward", x, x, (8,), rows, rows, weight, weight, (True, True, True)
    )
    assert judging.judge(given).verdict == table_file.STRICT


@pytest.mark.parametrize(
    ("kernel", "shape", "verdict"),
    [("negated", (1024, 4), ""), ("wrong_when_large", (1024, 4), "limited"), ("wrong_when_large", (128, 4), "")],
)  # fmt: skip
def test_a_kernel_that_is_wrong_from_some_size_on(
    served_by: Any, kernel: str, shape: tuple[int, ...], verdict: str
) -> None:
    served_by("neg", getattr(kernels, kernel))
    found = verifying.check("neg", [call("neg", facts(*shape))], How())
    assert found["verdict"] == table_file.STRICT and found["calls"] > 2, found
    assert found.get("limited", False) == (verdict == "limited")
    rows = sizes.from_table("neg", found["sizes"])[0][1]
    assert bool(rows >> sizes.size_class(1024) & 1) == (not verdict and shape[0] == 1024)
    if verdict:
        assert "neg(float32[1024,4]): Tensor-likes are not close" in found["first"]
        entry = verifying.merged(
            "neg", {"verdict": "STRICT", "cases": 1, "first": None}, found, "x"
        )
        assert entry["verdict"] == table_file.STRICT and "1024" in entry["beyond"]
        known = sizes.from_table("neg", entry["sizes"])
        assert not sizes.holds(known, classes.of(call("neg", facts(1024, 4))))
        assert sizes.holds(known, classes.of(call("neg", facts(16, 4))))


def test_wrong_results_may_have_conditions_and_wrong_writes_have_none(served_by: Any) -> None:
    calls = [call("neg", facts(6, 8)), call("neg", facts(6, 8, strides=(1, 6)))]
    served_by("neg", lambda x: kernels.negated(x.as_strided(x.shape, contiguous(tuple(x.shape)))))
    found = verifying.check("neg", calls, How())
    assert found["verdict"] == table_file.STRICT and found["only"] == ["contiguous"], found
    served_by(
        "neg", lambda x: kernels.negated(x) if x.is_contiguous() else kernels.written_beyond(x)
    )
    assert verifying.check("neg", calls, How())["verdict"] == table_file.FAILED


def test_smaller_calls_keep_equal_sizes_equal() -> None:
    x, weight = facts(8, 256, 768, dtype=torch.bfloat16), facts(768)
    given = call("native_layer_norm", x, (768,), weight, weight, 1e-5)
    shapes = [
        [one.shape for one in made.tensors()] + [made.args[1]] for made in ladder.smaller(given)
    ]
    assert shapes[0] == [(8, 64, 192), (192,), (192,), (192,)]
    assert shapes[-1] == [(8, 8, 8), (8,), (8,), (8,)]
    transposed = call("mm", facts(64, 128), facts(128, 32, strides=(1, 128)))
    assert next(ladder.smaller(transposed)).tensors()[1].strides == (1, 32)


# ---- sizes


def test_classes_of_sizes() -> None:
    assert [sizes.size_class(n) for n in (0, 1, 3, 4, 15, 16, 4095, 4096)] == [
        0,
        0,
        0,
        1,
        1,
        2,
        5,
        6,
    ]
    assert sizes.ranges(0b100011) == "0-15, 1024-4095"
    for mask in (0, 1, 0b100011, (1 << 20) - 1):
        assert sizes._mask(sizes.ranges(mask)) == mask
    given = call("mm", facts(64, 128), facts(128, 32))
    found = classes.of(given)
    assert sizes.from_table("mm", sizes.to_table("mm", found)) == found
    assert sizes.holds(found, found) and not sizes.holds(
        found, classes.of(call("mm", facts(64, 512), facts(512, 32)))
    )
    assert "argument 0 has 4096-16383 elements" in envelope.meaning(sizes.condition(found))


@pytest.mark.parametrize("size", [1, 3, 4, 63, 64, 255, 256])
def test_the_shim_and_python_agree_about_sizes(size: int) -> None:
    x, y = torch.ones(size, 8), torch.ones(8, 4)
    mine = classes.of(call("mm", facts(size, 8), facts(8, 4)))
    for n in (1, 4, 16, 64, 256):
        known = classes.of(call("mm", facts(n, 8), facts(8, 4)))
        condition = sizes.condition(known)
        held = envelope.holding("mm", (x, y), {}, [condition])
        assert (condition in held) == sizes.holds(known, mine), (n, size)


@pytest.mark.parametrize("text", ["", "0", "0:1/1", "0:1/1/1x", "9:1/1/1", "0:g/1/1"])
def test_what_the_shim_does_not_understand_is_never_held(text: str) -> None:
    held = envelope.holding("neg", (torch.ones(1),), {}, [f"{sizes.PREFIX}{text}"])
    assert not any(name.startswith(sizes.PREFIX) for name in held) or text == ""


_ROUTED = """
import json, sys, torch, torch_fl
small, large = torch.ones(8, 8, device="flagos"), torch.ones(512, 512, device="flagos")
small.neg(), large.neg()
counted = torch_fl.counters()["aten::neg"]
print(json.dumps([counted["calls"], counted["fallbacks"], str(torch_fl.explain("aten::neg"))]))
"""


def _table(folder: Path, **entry: Any) -> None:
    path = folder / "flagos" / tables.file_name("verdicts", tables.chip(), package.version())
    table = {**tables.table({"neg": {"verdict": "STRICT", "cases": 1, "first": None, **entry}})}
    table_file.write(path, table)


def _run(tmp_path: Path, program: str, policy: str, **variables: str) -> Any:
    environment = {
        **os.environ,
        "XDG_DATA_HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    environment |= {"FLAGOS_FLAGGEMS": policy, **variables}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["verified", "all"])
def test_verified_takes_no_call_of_another_size(tmp_path: Path, policy: str) -> None:
    _table(tmp_path)
    calls, fallbacks, explained = _run(tmp_path, _ROUTED, policy)
    assert (calls, fallbacks) == (2, 1 if policy == "verified" else 0), explained
    assert ("sizes are of verified classes: argument 0 has 0-4095 elements" in explained) == (
        policy == "verified"
    )
    whole = dict.fromkeys(("elements", "rows", "columns"), "0-4194303")
    _table(tmp_path, sizes={"self": whole})
    assert _run(tmp_path, _ROUTED, policy)[1] == 0, "with the size in the table it does"


_ON_USE = """
import json, os, torch, torch_fl
from torch_fl.flaggems import package
from torch_fl_tools.flaggems import checker
started = []
start = checker.Checker._start
checker.Checker._start = lambda self: (started.append(1), start(self))[1]
x = torch.linspace(-2, 2, 80 * 64).reshape(80, 64)
made = [x.to("flagos").neg().cpu().equal(-x) for _ in range(3)]
counted = torch_fl.counters()["aten::neg"]
print(json.dumps([all(made), counted["calls"], counted["fallbacks"], len(started)]))
"""


@pytest.mark.slow
def test_verify_on_use_tries_once_and_keeps_what_it_finds(tmp_path: Path) -> None:
    _table(tmp_path)
    assert _run(tmp_path, _ON_USE, "verify-on-use") == [True, 3, 0, 1]
    assert _run(tmp_path, _ON_USE, "verify-on-use") == [True, 3, 0, 0], (
        "known from the program before"
    )
    (kept,) = (tmp_path / "cache" / "flagos").glob("on-use.*.json")
    assert (
        "0-16383" in json.loads(kept.read_text())["overloads"]["neg"]["sizes"]["self"]["elements"]
    )
    kept.write_text("{")
    assert _run(tmp_path, _ON_USE, "verify-on-use") == [True, 3, 0, 1], (
        "a broken file is no finding"
    )


def test_verify_on_use_survives_a_kernel_that_does_not(tmp_path: Path) -> None:
    """FlagGems with a function that ends the process: the child's end, never the program's."""
    found = package.folder()
    assert found is not None
    folder = tmp_path / "flag_gems"
    folder.symlink_to(found) if False else None
    _table(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            def dies(x):
                if "torch_fl_tools.flaggems.checker" in " ".join(sys.orig_argv):
                    os.kill(os.getpid(), signal.SIGSEGV)
                raise SystemExit("it is called in the program itself")
            from flagos.on_import import when_imported
            def planted():
                package = sys.modules["torch_fl.flaggems.package"]
                load = package._load
                def loaded():
                    load()["neg"] = dies
                    return package._functions
                package._load = loaded
            when_imported("torch_fl.flaggems.package", planted)
            """
        )
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    assert _run(tmp_path, _ON_USE, "verify-on-use", PYTHONPATH=path) == [True, 3, 3, 1]
    (kept,) = (tmp_path / "cache" / "flagos").glob("on-use.*.json")
    (why,) = json.loads(kept.read_text())["overloads"]["neg"]["refused"].values()
    assert "the process that tried it ended with SIGSEGV" in why


# ---- the command


_VERIFIED = """
import sys
from unittest import mock
import adapters.torch.tests.flaggems.kernels as kernels
from torch_fl.flaggems import package
from torch_fl_tools.flaggems.verify import command as verify_command
package.load_before_forking()
package._functions["neg"] = getattr(kernels, sys.argv[1])
sys.exit(verify_command.main(sys.argv[2:]))
"""


def _verify(tmp_path: Path, kernel: str, *more: str) -> tuple[int, dict[str, Any], str]:
    record, out = tmp_path / "my.rec", tmp_path / "table.json"
    files.write(
        record,
        [call("neg", facts(1024, 2)), call("neg", facts(6, 8, strides=(1, 6))), call("no_such", 1)],
    )
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        _VERIFIED,
        kernel,
        "--record",
        str(record),
        "--out",
        str(out),
    ]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [*command, "--jobs", "1", "--json", *more],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout, done.stderr
    table = json.loads(out.read_text())["overloads"] if out.exists() else {}
    return done.returncode, {"told": json.loads(done.stdout), "table": table}, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "status", "verdict", "said"),
    [
        ("negated", 0, "STRICT", None),
        ("dies_when_large", 0, "STRICT", "neg(float32[1024,2]): the process ended with SIGSEGV"),
        ("dies", 1, "FAILED", "the process ended with SIGSEGV"),
        ("written_beyond", 1, "FAILED", "it writes outside the memory number 1"),
    ],
)  # fmt: skip
def test_the_command_names_the_call(
    tmp_path: Path, kernel: str, status: int, verdict: str, said: str | None
) -> None:
    code, found, err = _verify(tmp_path, kernel)
    assert code == status, err
    report, entry = found["told"]["neg"], found["table"]["neg"]
    assert report["verdict"] == verdict, report
    assert report["first"] is None if said is None else said in report["first"]
    assert entry["verdict"] == ("FAILED" if verdict == "FAILED" else "UNTESTED"), (
        "no sample was verified"
    )
    assert set(found["told"]) == {"neg"} and "[1/1] neg, recorded" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "jobs", "verdict", "calls"),
    [
        ("without_memory_once", "2", "STRICT", "all"),
        ("without_memory_once", "1", "STRICT", "all but one"),
        ("without_memory", "2", "UNTESTED", "none"),
    ],
)  # fmt: skip
def test_what_finds_no_memory_is_tried_without_others_and_is_not_wrong(
    tmp_path: Path, kernel: str, jobs: str, verdict: str, calls: str
) -> None:
    every = _verify(tmp_path, "negated")[1]["told"]["neg"]["calls"]
    code, found, err = _verify(tmp_path, kernel, "--jobs", jobs)
    report = found["told"]["neg"]
    assert code == 0 and report["verdict"] == verdict and "short" not in report, report
    assert report["calls"] == {"all": every, "all but one": every - 1, "none": 0}[calls]
    assert ("neg again without others: neg(float32[1024,2]): there is no memory" in err) == (
        jobs == "2"
    )
    assert ("there is no memory for it" in str(report["first"])) == (calls == "none")
    # What was not tried at all is tried again by --resume.
    assert ("records" in found["table"]["neg"]) == (calls != "none")


def test_a_wrong_call_stays_wrong_if_there_is_no_time_without_others(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some_without_memory(x: torch.Tensor) -> torch.Tensor:
        return kernels.without_memory(x) if x.shape[0] > 100 else kernels.written_beyond(x)

    served_by("neg", some_without_memory)
    calls = [call("neg", facts(1024, 2)), call("neg", facts(6, 8))]
    report: list[str] = []
    monkeypatch.setattr(
        verifying, "print", lambda *words, **_: report.append(words[0]), raising=False
    )
    found = verifying.verify(calls, 2, How(), stop=lambda: bool(report))
    assert "neg again without others" in report[0]
    assert found["neg"]["verdict"] == table_file.FAILED and found["neg"]["not_reached"]
    assert "writes outside the memory" in found["neg"]["first"]


def test_no_memory_for_the_result_in_float64_says_nothing(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served_by("sum", lambda x, **rest: kernels.summed(x, **rest) + 1e-3)

    def without(value: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    given = call("sum", facts(5, 9))
    assert judging.judge(given).verdict == table_file.FAILED, "the control"
    monkeypatch.setattr(judging, "_in_double", without)
    found = judging.judge(given)
    assert found.verdict is None and found.short, found


@pytest.mark.slow
def test_the_command_goes_on_where_it_was(tmp_path: Path) -> None:
    _verify(tmp_path, "negated")
    code, found, err = _verify(tmp_path, "dies", "--resume")
    report = found["told"]["neg"]
    assert report["verdict"] == "STRICT" and report["before"], (
        "it was verified by these calls before"
    )
    assert code == 0 and "there is nothing left to do" in err
    _, found, _ = _verify(tmp_path, "dies", "--resume", "--every-config")
    assert found["told"]["neg"]["verdict"] == "FAILED", "but not by every configuration"


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_what_failed_before_counts(tmp_path: Path, more: tuple[str, ...]) -> None:
    entry = {"verdict": "FAILED", "cases": 1, "first": "sample 0: wrong"}
    about = {"triton": entries.version_of("triton"), "samples": None}
    table_file.write(tmp_path / "table.json", tables.table({"neg": entry, "exp": entry}, **about))
    code, found, err = _verify(tmp_path, "negated", *more)
    assert code == 1 and "there is nothing left to do" in err
    assert found["told"] == {"neg": {"verdict": "FAILED", "first": entry["first"], "before": True}}
    assert "1 overloads were FAILED before" in err and "flagos verify --ops neg --out" in err
    assert found["table"] == {"neg": entry, "exp": entry}
    other = tables.table({"neg": entry, "exp": entry}, **about) | {"torch": "1.0"}
    table_file.write(tmp_path / "table.json", other)
    assert "anew: flagos verify --out" in _verify(tmp_path, "negated", *more)[2], (
        "of some overloads it would replace the table"
    )


@pytest.mark.slow
def test_right_calls_without_samples_are_told_to_serve_nothing(tmp_path: Path) -> None:
    _, found, err = _verify(tmp_path, "negated")
    assert found["told"]["neg"]["verdict"] == "STRICT"
    assert found["table"]["neg"]["verdict"] == "UNTESTED"
    assert "1 overloads are right in these calls, and the policy takes none before" in err
    assert f"flagos verify --ops neg --out {tmp_path / 'table.json'}" in err
    about = {"triton": entries.version_of("triton"), "samples": None}
    assert tables.continued(tmp_path / "table.json", **about) == found["table"], "and it goes on"
    entry = {"verdict": "UNTESTED", "cases": 0, "first": "no sample calls it"}
    table_file.write(tmp_path / "table.json", tables.table({"neg": entry}))
    _, found, err = _verify(tmp_path, "negated")
    assert "neg stays UNTESTED, and the policy does not take it: no sample calls it" in err
    assert "flagos verify --ops" not in err


def test_an_interrupt_leaves_the_table_of_records_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, path = tmp_path / "my.rec", tmp_path / "table.json"
    files.write(record, [call("exp", facts(2)), call("neg", facts(2))])
    strict = {"verdict": "STRICT", "cases": 1, "first": None}
    table_file.write(path, tables.table({"abs": strict, "exp": strict, "neg": strict}))
    before = path.read_bytes()
    found = {"verdict": "STRICT", "calls": 1, "first": None, "seconds": 0.0}
    ran: list[str] = []

    def some(calls: Any, *rest: Any) -> None:
        overloads = sorted({one.overload for one in calls})
        for name in overloads:
            ran.append(name)
            rest[3](1, len(overloads), name, found)
            if len(overloads) == 2:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(verifying, "verify", some)
    monkeypatch.setattr(requirements, "require_device", lambda: None)
    arguments = ["--record", str(record), "--out", str(path)]
    verify_command.main(arguments)
    assert path.read_bytes() == before and table_file.partial(path).is_file() and ran == ["exp"]
    assert f"what there is lies in {table_file.partial(path)}" in capsys.readouterr().err
    assert verify_command.main([*arguments, "--resume"]) == 0
    assert ran == ["exp", "neg"] and not table_file.partial(path).exists()
    kept = json.loads(path.read_text())["overloads"]
    assert kept["abs"] == strict and all("records" in kept[name] for name in ran)
    assert "2 STRICT, 0 BASIC" in capsys.readouterr().out


def test_a_file_that_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "my.rec"
    path.write_text("{}\n")
    command = [sys.executable, "-m", "flagos", "verify", "--record", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "is no record: `flagos record" in done.stderr


@pytest.mark.slow
def test_the_sanitizer_is_named_where_it_is_missing_and_believed_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "compute-sanitizer is not on PATH" in (sanitizer.missing() or "")
    tool = tmp_path / sanitizer.TOOL
    tool.write_text(f"#!{sys.executable}\n" + textwrap.dedent(
        """
        import subprocess, sys
        at = sys.argv.index("--error-exitcode")
        done = subprocess.run(sys.argv[at + 2:], capture_output=True, text=True)
        if '"aten::neg"' in done.stdout:
            print("========= Invalid __global__ write of size 4 bytes")
            sys.exit(int(sys.argv[at + 1]))
        sys.exit(done.returncode)
        """))  # fmt: skip
    tool.chmod(0o755)
    assert sanitizer.missing() is None
    assert sanitizer.check(NEG) == "compute-sanitizer: Invalid __global__ write of size 4 bytes"
    assert sanitizer.check(call("abs", facts(3))) is None

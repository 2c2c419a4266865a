"""`flagos report`: the data, the page, and programs that fail, are killed, or are several processes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch._C._autograd import DeviceType

from torch_fl_tools.report import (
    agent,
    counting,
    data,
    device_time,
    memory,
    page,
    program,
    quantities,
)

pytestmark = pytest.mark.host

EVIL = "<script>document.title = 'run'</script>"

TRAINING = f"""
import json, sys
import torch
import flagos, torch_fl

@flagos.implementation("aten::tanh")
def tanh(x):
    if x.numel() > 100:
        raise flagos.UnsupportedError("large {EVIL}")
    return torch.sigmoid(x + x)

w = torch.randn(8, 8).to("flagos").requires_grad_()
x = torch.randn(40, 8).to("flagos")
for _ in range(5):
    loss = torch.tanh(x @ w).square().mean() + torch.tanh(w).sum()
    loss.backward()
with flagos.route({{"aten::tanh": "vendor"}}):
    torch.tanh(w.detach())
print(json.dumps(torch_fl.counters()))
if "fail" in sys.argv:
    raise ValueError({EVIL!r})
"""


def report(
    folder: Path, *options: str, program: list[str], **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    return subprocess.run(
        [str(Path(sys.executable).with_name("flagos")), "report", *options, "--", *program],
        cwd=folder,
        env={**kept, "FLAGOS_VENDOR": "host", "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def python(text: str, *arguments: str) -> list[str]:
    """The command that runs a program."""
    return [sys.executable, "-c", text, *arguments]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The training, which ends with an error: its data, its page, its counters."""
    folder = tmp_path_factory.mktemp("report")
    ended = report(
        folder, "--json", "-o", "page.html", program=python(TRAINING, "fail", "<b>bold</b>")
    )
    assert ended.returncode == 1, ended.stderr
    counters = next(line for line in ended.stderr.splitlines() if line.startswith("{"))
    return SimpleNamespace(
        data=json.loads(ended.stdout),
        page=(folder / "page.html").read_text(),
        path=folder / "page.html",
        counters=json.loads(counters),
    )


def rows(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (process,) = report["processes"]
    return {row["op"]: row for row in process["operators"]}


def test_calls_are_those_of_the_counters(failed: Any) -> None:
    counted = {op: row["calls"] for op, row in rows(failed.data).items() if row["routed"]}
    assert counted == {op: numbers["calls"] for op, numbers in failed.counters.items()}
    assert counted["aten::mm"] == 5 + 5


def test_what_served_is_told_also_where_the_route_changed(failed: Any) -> None:
    tanh = rows(failed.data)["aten::tanh"]
    assert tanh["served"] == {"user.tanh": 5, "cpu.native": 5 + 1}
    assert tanh["fallbacks"] == 5
    assert tanh["reasons"] == {f"large {EVIL}": 5}
    assert [one["impl_id"] for one in tanh["alternatives"]] == ["user.tanh", "cpu.native"]
    by = {one["name"]: one for one in failed.data["processes"][0]["implementations"]}
    assert by["user.tanh"]["calls"] == 5
    assert (
        by["cpu.native"]["calls"] == sum(failed.counters[op]["calls"] for op in failed.counters) - 5
    )


def test_times_are_of_every_call_without_those_within(failed: Any) -> None:
    found = rows(failed.data)
    for op in ("aten::mm", "aten::mean", "aten::sigmoid", "aten::tanh_backward"):
        assert found[op]["host_calls"] == found[op]["calls"], op
        assert found[op]["host_own_ns"] == found[op]["host_total_ns"] > 0, op
    # The kernel in Python calls two operators, and torch composes matmul of mm.
    assert found["aten::tanh"]["host_calls"] == found["aten::tanh"]["calls"]
    for op in ("aten::tanh", "aten::matmul"):
        assert 0 < found[op]["host_own_ns"] < found[op]["host_total_ns"], op
    assert found["aten::matmul"]["served"] == {"in no route": 5}
    device = failed.data["processes"][0]["device_time"]
    assert "'host'" in device["why_not"] and found["aten::mm"]["device_ns"] is None


def test_operators_of_the_cpu_are_not_told(tmp_path: Path) -> None:
    text = "import torch; a = torch.ones(3); torch.sin(a); torch.cos(a.to('flagos'))"
    ended = report(tmp_path, "--json", program=python(text))
    found = rows(json.loads(ended.stdout))
    assert found["aten::cos"]["host_calls"] == 1
    assert "aten::sin" not in found and "aten::ones" not in found
    assert not (tmp_path / "flagos-report.html").exists()


def test_a_call_that_autocast_casts_for_is_one(tmp_path: Path) -> None:
    text = """
import torch, flagos, torch_fl

@flagos.implementation("aten::tanh")
def tanh(x):
    return torch.tanh(x)  # served natively, and counted: two calls for each

x, w = torch.randn(1, 2, 5, 5).to("flagos"), torch.randn(3, 2, 3, 3).to("flagos")
for enabled in (False, True, True):
    with torch.autocast("flagos", dtype=torch.bfloat16, enabled=enabled):
        torch.tanh(torch.conv2d(x, w))
"""
    ended = report(tmp_path, "--json", program=python(text))
    found = rows(json.loads(ended.stdout))
    assert found["aten::conv2d"]["host_calls"] == found["aten::conv2d"]["calls"] == 3, ended.stderr
    assert 0 < found["aten::conv2d"]["host_own_ns"] < found["aten::conv2d"]["host_total_ns"]
    assert found["aten::tanh"]["host_calls"] == 6


def test_memory_and_lock_are_told(failed: Any) -> None:
    (process,) = failed.data["processes"]
    (device,) = process["memory"]
    assert device["index"] == 0 and device["points"]
    assert 0 < device["points"][-1][1] <= device["peak_allocated"] <= device["peak_reserved"]
    (lock,) = failed.data["locks"]
    assert '"aten::tanh" = "user.tanh"' in lock


class Parsed(HTMLParser):
    """The elements of a page, which must be closed in order, and the text of each kind."""

    VOID = frozenset(["meta", "br"])

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.texts.setdefault(tag, []).append("")
        if tag not in self.VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not (self.open and self.open[-1] == tag) and tag in ("rect", "line", "polyline"):
            return  # `<rect/>` is both
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data


def assert_whole(text: str) -> Parsed:
    """The page is well formed, refers to nothing outside, and has no script but its own."""
    parsed = Parsed(text)
    names = {name for _, name, _ in parsed.attributes}
    refers = names & {"src", "href", "xlink:href", "srcset", "action", "data", "style"}
    assert not refers and not {name for name in names if name.startswith("on")}
    (style,) = parsed.texts["style"]
    assert "url(" not in style and "@import" not in style
    assert parsed.texts["script"] == [Path(page.__file__).with_name("sort.js").read_text()]
    return parsed


def test_the_page_stands_alone_and_escapes_what_the_program_says(failed: Any) -> None:
    parsed = assert_whole(failed.page)
    assert any(f"5 × large {EVIL}" in cell for cell in parsed.texts["td"])
    assert f"ValueError: {EVIL}" in parsed.texts["p"]
    assert "<b>bold</b>" in parsed.texts["h1"][0] and "failed with status 1" in parsed.texts["p"][0]
    assert any("was not measured" in item for item in parsed.texts["li"])
    assert any("user.tanh" in cell for cell in parsed.texts["td"])
    assert len(parsed.texts["svg"]) == 4  # two bars of shares, the slowest, memory
    # And that this would be noticed.
    with pytest.raises(AssertionError):
        assert_whole(failed.page.replace("</h1>", "</h1><script>1</script>"))
    with pytest.raises(AssertionError):
        assert_whole(failed.page.replace("</h1>", '</h1><img src="x">'))
    with pytest.raises(AssertionError):
        assert_whole(failed.page.replace("</h1>", ""))


def evil(value: Any) -> Any:
    """The value with `<script>` in every text, also in the names of operators and implementations."""
    if isinstance(value, dict):
        counted = all(isinstance(number, int) for number in value.values())
        names = {name: EVIL + name for name in value} if counted else {name: name for name in value}
        return {names[name]: evil(one) for name, one in value.items()}
    if isinstance(value, list):
        return [evil(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        changed = {each.name: evil(getattr(value, each.name)) for each in fields(value)}
        return replace(value, **changed)
    return EVIL + value if isinstance(value, str) else value


def from_json(value: dict[str, Any]) -> data.Report:
    """The report that `--json` printed."""

    def process(one: dict[str, Any]) -> data.Process:
        operators = [
            data.Operator(
                **{**each, "alternatives": [data.Alternative(**a) for a in each["alternatives"]]}
            )
            for each in one["operators"]
        ]
        return data.Process(
            **{
                **one,
                "operators": operators,
                "implementations": [data.Implementation(**each) for each in one["implementations"]],
                "gathered": [data.Gathered(**each) for each in one["gathered"]],
                "device_time": data.DeviceTime(**one["device_time"]),
                "memory": [data.DeviceMemory(**each) for each in one["memory"]],
            }
        )

    return data.Report(**{**value, "processes": [process(one) for one in value["processes"]]})


def test_every_text_is_escaped(failed: Any) -> None:
    value = evil(from_json(failed.data))
    (process,) = value.processes
    text = page.text(replace(value, processes=[replace(process, rank=EVIL)]))
    parsed = assert_whole(text)
    assert f"{EVIL}aten::mm" in parsed.texts["td"]
    assert EVIL in parsed.texts["pre"][0]
    assert text.count("<script>") == 1


def browser(path: Path) -> str:
    """The page's document after Chromium ran it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    ended = subprocess.run(
        [chromium, *flags, profile, path.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_browser_sorts_and_runs_no_other_script(failed: Any, tmp_path: Path) -> None:
    click = "for (const b of document.querySelectorAll('th:nth-child(3) button')) b.click();"
    clicking = failed.page.replace("</body>", f"<script>{click}</script></body>")
    forbidden, allowed = tmp_path / "forbidden.html", tmp_path / "allowed.html"
    forbidden.write_text(clicking)
    digest = base64.b64encode(hashlib.sha256(click.encode()).digest()).decode()
    allowed.write_text(clicking.replace("script-src ", f"script-src 'sha256-{digest}' ", 1))
    assert "aria-sort" not in browser(forbidden).partition("<body>")[2].partition("<script>")[0]
    document = browser(allowed)
    calls = last_table(document)
    assert document.count('aria-sort="descending"') >= 2
    assert calls == sorted(calls, reverse=True)
    before = last_table(failed.page)
    assert sorted(before) == sorted(calls) and before != calls


def last_table(text: str) -> list[int]:
    """The calls in the table of all operators."""
    body = text.rpartition("<tbody>")[2].partition("</tbody>")[0]
    lines = re.findall("<tr>(.*?)</tr>", body)
    return [int(re.findall(r'data-value="(\d+)"', line)[0]) for line in lines]


def test_the_script_is_valid() -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node")
    script = Path(page.__file__).with_name("sort.js")
    assert subprocess.run(["node", "--check", str(script)], check=False).returncode == 0


def test_an_error_in_the_configuration_comes_where_it_comes_without_a_report(
    tmp_path: Path,
) -> None:
    for text, status in (("import torch", 0), ("import torch; torch.ones(3, device='flagos')", 1)):
        ended = report(tmp_path, program=python(text), FLAGOS_OP_nosuch="cpu")
        assert ended.returncode == status, ended.stderr
        assert "RuntimeWarning" not in ended.stderr
        assert "unknown operator `nosuch`" in ended.stderr  # by the program, or else by the report
        assert ("Traceback" in ended.stderr) == (status == 1)


def test_a_killed_program_leaves_what_there_was(tmp_path: Path) -> None:
    text = """
import os, pathlib, signal, torch
x = torch.ones(4, device="flagos")
torch.sin(x)
value = pathlib.Path(os.environ["FLAGOS_REPORT"], f"{os.getpid()}.json")
while "aten::cos" not in value.read_text():
    torch.cos(x)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = report(tmp_path, "--json", program=python(text))
    assert ended.returncode == 128 + 9, ended.stderr
    value = json.loads(ended.stdout)
    assert (value["status"], value["outcome"]) == (-9, "ended by SIGKILL")
    assert value["processes"][0]["ended"] is False
    assert rows(value)["aten::sin"]["calls"] == 1
    assert "did not end by itself" in page.text(from_json(value))


@pytest.mark.parametrize(
    ("end", "status"),
    [("os.kill(os.getpid(), signal.SIGSEGV)", 128 + 11), ("os._exit(7)", 7)],
)
def test_a_program_that_is_killed_at_once_is_said_to_be(
    tmp_path: Path, end: str, status: int
) -> None:
    text = f"import os, signal, torch, torch_fl; {end}"
    ended = report(tmp_path, "--json", "-o", "page.html", program=python(text))
    assert ended.returncode == status
    assert "a process that loaded flagos ended before it could write" in ended.stderr
    assert "no flagos device" not in ended.stderr
    value = json.loads(ended.stdout)
    assert (value["processes_without_calls"], value["processes_cut_short"]) == (0, 1)
    said = assert_whole((tmp_path / "page.html").read_text()).texts["p"]
    assert (
        "Processes that loaded flagos and ended before they could write what they did: 1." in said
    )


def test_what_a_process_did_is_written_early_then_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every quarter of a second it is asked; the device is used after four seconds."""
    observer = object.__new__(agent._Agent)
    observer._written = observer._unused = 0.0
    written = []
    for now in (quarter / 4 for quarter in range(1, 53)):
        monkeypatch.setattr(memory, "is_used", lambda now=now: now > 4)
        if observer._is_due(now):
            observer._written = now
            written.append(now)
    assert written == [4.25, 4.5, 5, 6, 8, 10, 12]


def test_a_signal_to_the_command_reaches_the_program(tmp_path: Path) -> None:
    text = """
import os, signal, torch
torch.sin(torch.ones(4, device="flagos"))
signal.signal(signal.SIGTERM, lambda *_: exit(7))
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""
    ended = report(tmp_path, "--json", program=python(text))
    assert ended.returncode == 7, ended.stderr
    value = json.loads(ended.stdout)
    assert value["processes"][0]["ended"] is True and rows(value)["aten::sin"]["calls"] == 1


@pytest.mark.slow
def test_each_process_has_a_section_and_idle_ones_are_counted(tmp_path: Path) -> None:
    rank = "import os, torch; [torch.sin(torch.ones(4, device='flagos')) for _ in range(int(os.environ['RANK']) + 1)]"
    text = f"""
import os, subprocess, sys, torch, torch_fl
ranks = [
    subprocess.Popen([sys.executable, "-c", {rank!r}], env={{**os.environ, "RANK": rank}})
    for rank in "10"
]
assert [rank.wait() for rank in ranks] == [0, 0]
"""
    ended = report(tmp_path, "--json", "-o", "page.html", program=python(text))
    value = json.loads(ended.stdout)
    assert value["processes_without_calls"] == 1
    calls = [
        (process["rank"], row["calls"])
        for process in value["processes"]
        for row in process["operators"]
        if row["op"] == "aten::sin"
    ]
    assert calls == [("0", 1), ("1", 2)]
    headings = assert_whole((tmp_path / "page.html").read_text()).texts["h2"]
    assert [heading.split(",")[0] for heading in headings[:2]] == ["rank 0", "rank 1"]


def test_threads_and_forks_are_part_of_it(tmp_path: Path) -> None:
    text = """
import os, threading, torch
x = torch.ones(4, device="flagos")
def work():
    for _ in range(200):
        torch.sin(x)
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
import warnings
warnings.simplefilter("error")  # Python warns of forks beside other threads: the program's own, and no more
[thread.join() for thread in threads]
child = os.fork()
if child == 0:
    torch.ones(4).sin()
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    value = json.loads(report(tmp_path, "--json", program=python(text)).stdout)
    sin = rows(value)["aten::sin"]
    assert sin["calls"] == sin["host_calls"] == 600


@pytest.mark.parametrize(
    ("options", "program", "says"),
    [
        ([], [], "no program is named"),
        ([], ["no-such-program"], "no-such-program cannot be run"),
        (["-o", "no/such/page.html"], ["touch", "ran"], "no/such is no folder"),
        (["-o", "."], ["touch", "ran"], ". is a folder"),
        (["-o", ""], ["touch", "ran"], ". is a folder"),
        (["-o", "/proc/x.html"], ["touch", "ran"], "/proc/x.html cannot be written"),
        (["-o", "/dev/zero"], ["touch", "ran"], "/dev/zero is no regular file"),
    ],
)
def test_what_cannot_be_reported_is_said_first(
    tmp_path: Path, options: list[str], program: list[str], says: str
) -> None:
    ended = report(tmp_path, *options, program=program)
    assert ended.returncode == 1 and says in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_seconds_is_asked_for_by_name(tmp_path: Path) -> None:
    ended = report(tmp_path, "--device-seconds", "x", program=["true"])
    assert ended.returncode == 2
    assert "--device-seconds: 'x' is no number of seconds, zero or more" in ended.stderr


def test_words_that_are_no_text_are_told(tmp_path: Path) -> None:
    program = [*python("import torch; torch.ones(3, device='flagos')"), "\udcff"]
    ended = report(tmp_path, "-o", "\udcfe.html", program=program)
    assert ended.returncode == 0, ended.stderr
    (found,) = tmp_path.iterdir()
    assert found.name == "\udcfe.html" and "\\udcff" in found.read_text()


def test_a_variable_that_the_device_refuses_is_the_programs_own_error(tmp_path: Path) -> None:
    program = python("import torch_fl")
    ended = report(tmp_path, program=program, FLAGOS_FLAGGEMS="bogus")
    assert ended.returncode == 1 and ended.stderr.count("Traceback") == 1
    assert "torch_fl_cli" not in ended.stderr


def test_a_program_without_the_device_has_a_page_that_says_so(tmp_path: Path) -> None:
    ended = report(tmp_path, program=[sys.executable, "-c", "raise SystemExit(3)"])
    assert ended.returncode == 3 and "never loaded flagos" in ended.stderr
    assert "No process of the program" in (tmp_path / "flagos-report.html").read_text()


def test_the_variable_names_a_folder_of_a_report_or_is_an_error(tmp_path: Path) -> None:
    environment = {**os.environ, "FLAGOS_VENDOR": "host", "FLAGOS_REPORT": str(tmp_path)}
    ended = subprocess.run(
        python("import torch_fl"), env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert f"FLAGOS_REPORT={tmp_path} names no folder of `flagos report`" in ended.stderr


def test_calls_belong_to_the_plan_that_was_in_force() -> None:
    served = counting.Served()
    served.plan({}, {}, '[ops]\n"aten::a" = "one"\n"aten::b" = "cpu.fallback"\n')
    counted = {"aten::a": {"calls": 5, "fallbacks": 2}, "aten::b": {"calls": 3, "fallbacks": 3}}
    served.plan(counted, {}, '"aten::a" = "two"\n')
    served.count({"aten::a": {"calls": 9, "fallbacks": 3}}, {"aten::a": 2})
    served.count({"aten::a": {"calls": 1, "fallbacks": 0}}, {"aten::a": 1})  # after a reset
    operators = served.operators()
    assert operators["aten::a"] == {
        "served": {"one": 3, "two": 2 + 1},
        "instead": 2 + 2,
        "fallbacks": 3,
    }
    assert operators["aten::b"] == {"served": {"cpu.fallback": 3}, "instead": 0, "fallbacks": 3}


def test_measured_times_of_alternatives_are_shown(failed: Any, tmp_path: Path) -> None:
    file = {
        name: failed.data["processes"][0][name] for name in ("argv", "error", "memory", "problems")
    }
    gems = {"impl_id": "flaggems.python", "kind": "flagos", "chosen": False, "reason": "slower"}
    native = {"impl_id": "cuda.native", "kind": "vendor", "chosen": True, "reason": None}
    entry = {
        "served": {"cuda.native": 4},
        "instead": 0,
        "fallbacks": 0,
        "host": {"calls": 4, "total_ns": 9, "own_ns": 8},
        "device": {"calls": 2, "ns": 5000},
        "decided_by": "the default",
        "alternatives": [gems, native],
        "followed": 3,
        "native": {"not repeated often enough yet": 1},
    }
    file |= {
        "pid": 1,
        "rank": None,
        "vendor": "cuda",
        "torch": "2.11.0",
        "flagos": "0.1.0",
        "started": 0.0,
        "seconds": 1.0,
        "ended": True,
    }
    file |= {
        "operators": {"aten::exp": entry},
        "lock": "",
        "device_time": {"why_not": None, "seconds": 2.0},
    }
    file |= {"graphs": {"calls": 40, "followed": 36, "bytes held": 2048}, "queued": 1234}
    lacked = {"library": "libhccl.so", "op": "sum", "dtype": "float64", "calls": 3, "bytes": 3072}
    file |= {"gathered": [lacked]}
    file |= {"speed": {"chip": "H", "ratios": {"exp": {"host": 1.225, "device": 0.782}}}}
    (tmp_path / "1.json").write_text(json.dumps(file))
    made = data.gather(tmp_path, ["train"], program.Ended(0, 1.0, 0.0))
    texts = assert_whole(page.text(made)).texts
    facts = " ".join(text for found in texts.values() for text in found)
    assert "90%" in facts and "1,234" in facts
    cells = texts["td"]
    assert cells[cells.index("followed") + 1] == "36"
    at = cells.index("libhccl.so")
    assert cells[at : at + 5] == ["libhccl.so", "sum", "float64", "3", "3.00 KiB"]
    at = cells.index("1 × not repeated often enough yet")
    assert cells[at - 3 : at] == ["aten::exp", "3", "1"]
    at = cells.index("flaggems.python")
    assert cells[at : at + 4] == ["flaggems.python", "", "host: 1.23 ×, device: 0.78 ×", "slower"]
    assert "5.00 µs" in cells and "2.50 µs" in cells  # on the device, and per call


def test_points_are_few_and_keep_the_peak() -> None:
    samples = memory.Samples(most=10)
    for at in range(1000):
        samples.add(at, 5000 if at == 777 else at, 6000)
    assert len(samples.points) <= 10
    assert max(samples.points, key=lambda point: point[1]) == (777, 5000, 6000)
    assert [point[0] for point in samples.points] == sorted(point[0] for point in samples.points)


def test_kernels_belong_to_the_operator_that_launched_them() -> None:
    def event(name: str, device: Any, own: int, linked: int, ns: int, overload: str = "") -> Any:
        return SimpleNamespace(
            name=lambda: name,
            overload_name=lambda: overload,
            device_type=lambda: device,
            correlation_id=lambda: own,
            linked_correlation_id=lambda: linked,
            duration_ns=lambda: ns,
        )

    cpu, cuda = DeviceType.CPU, DeviceType.CUDA
    found: Callable[..., Any] = device_time.by_operator
    events = [
        event("void kernel", cuda, 90, 2, 700),
        event("aten::add", cpu, 1, 0, 10, "Tensor"),
        event("aten::mm", cpu, 2, 0, 10),
        event("aten::mm", cpu, 3, 0, 10),
        event("cudaLaunchKernel", cpu, 90, 2, 5),
        event("void other", cuda, 91, 3, 50),
        event("Memcpy", cuda, 92, 0, 9999),
    ]
    assert found(events) == {"aten::mm": {"calls": 2, "ns": 750}}


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 ns"), (999, "999 ns"), (1234, "1.23 µs"), (5.2e10, "52.0 s")]
)
def test_durations_have_units(value: float, text: str) -> None:
    assert quantities.duration(value) == text

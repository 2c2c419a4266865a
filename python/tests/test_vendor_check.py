"""`flagos vendor check`: a good chip passes, and every defect is named by the right step."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from python.tests.chips import Compile, Defective
from python.tests.interpreters import Interpreter, Result

#: Enough for a step on a slow machine, where it has to be waited for.
TIMEOUT = "20"

Findings = dict[str, dict[str, Any]]


def check(interpreter: Interpreter, *arguments: str | Path) -> tuple[Result, Findings]:
    """Runs the checklist. Returns the result, and its findings by step."""
    result = interpreter.flagos("vendor", "check", "--json", *map(str, arguments))
    assert result.status in (0, 1), result.err
    report = result.json
    assert (report["status"] == "fail") == (result.status == 1)
    return result, {step["name"]: step for step in report["steps"]}


def statuses(findings: Findings) -> dict[str, str]:
    return {name: finding["status"] for name, finding in findings.items()}


def failed(findings: Findings) -> list[str]:
    return [name for name, status in statuses(findings).items() if status == "fail"]


def test_the_example_chip_passes(without_torch: Interpreter, chip: Path) -> None:
    result, findings = check(without_torch, chip)
    assert result.status == 0, findings
    expected = dict.fromkeys(findings, "pass")
    # No manifest is named, and which operators torch has is not known without torch.
    expected["manifest"] = expected["operators"] = "skip"
    assert statuses(findings) == expected
    assert {"file", "table", "open", "copies-arrive", "work-knows-that-it-is-work"} <= set(findings)
    assert findings["file"]["detail"] == str(chip)
    assert findings["symbols"]["detail"] == "flagos_vendor, flagos_kernels"
    assert findings["version"]["detail"].startswith("1.3")
    assert "example 1.0" in findings["description"]["detail"]
    assert "aten::mm" in findings["kernels"]["detail"]
    assert findings["probe"]["detail"] == "2 devices"
    assert "Example Chip 1" in findings["devices"]["detail"]
    assert "torch_fl: not installed" in findings["operators"]["detail"]


def test_the_text_is_for_people(without_torch: Interpreter, chip: Path) -> None:
    result = without_torch.flagos("vendor", "check", str(chip))
    assert result.status == 0, result.out
    lines = result.out.splitlines()
    assert lines[1].split() == ["PASS", "file", str(chip)]
    assert "0 failed, 2 skipped" in lines[-1]
    assert "\x1b" not in result.out


#: Code, change of the tables, the step that fails, and what it says.
DEFECTS: dict[str, tuple[str, str, str, str]] = {
    "ends the process when it is loaded": (
        "__attribute__((constructor)) static void loaded(void) { _exit(0); }",
        "",
        "load",
        "the library ended the process, with status 0",
    ),
    "crashes when it is loaded": (
        "__attribute__((constructor)) static void loaded(void) { raise(SIGILL); }",
        "",
        "load",
        "crashed with SIGILL",
    ),
    "declines": ("", '*reason = "needs driver 7"; return NULL;', "version", "needs driver 7"),
    "another version": ("", "table.major = 7;", "version", "version 7.3"),
    "a small table": ("", "table.struct_size = 64;", "table", "struct_size of 64 bytes"),
    "missing functions": (
        "",
        "table.event_wait = NULL; table.stream_sync = NULL;",
        "table",
        "stream_sync, event_wait are missing",
    ),
    "a reserved slot": ("", "table.reserved[3] = &table;", "table", "reserved slot 3"),
    "a name that is none": (
        "static FlagosVendorDescription other;",
        'other = *table.description; other.name = "My Chip"; table.description = &other;',
        "description",
        "`My Chip`",
    ),
    "kernels without a function": ("", "kernels.run = NULL;", "kernels", "run is missing"),
    "kernels that are not found": (
        'static const char *const names[] = {"aten::mm", "aten::unheard_of", NULL};',
        "kernels.names = names;",
        "kernels",
        "aten::unheard_of",
    ),
    "a crash in the probe": (
        "static int32_t probe(int32_t *count) { (void)count; raise(SIGSEGV); return 0; }",
        "table.probe = probe;",
        "probe",
        "crashed with SIGSEGV",
    ),
    "no device": (
        "static int32_t probe(int32_t *count) { *count = 0; return 0; }",
        "table.probe = probe;",
        "probe",
        "0 devices",
    ),
    "a crash in open": (
        """static int32_t broken(const FlagosVendorOptions *options, FlagosVendorInstance **out) {
             (void)options, (void)out;
             abort();
           }""",
        "table.open = broken;",
        "open",
        "crashed with SIGABRT",
    ),
    "a hang in open": (
        """static int32_t broken(const FlagosVendorOptions *options, FlagosVendorInstance **out) {
             (void)options, (void)out;
             for (;;) pause();
             return 0;
           }""",
        "table.open = broken;",
        "open",
        "did not finish in 3 s",
    ),
    "no memory told": (
        """static int32_t memory(FlagosVendorInstance *i, int32_t device, FlagosVendorMemory *out) {
             (void)i, (void)device, (void)out;
             return FLAGOS_VENDOR_DEVICE;
           }""",
        "table.device_memory = memory;",
        "devices",
        "device_memory",
    ),
    "a crash in close": (
        "static void broken(FlagosVendorInstance *instance) { (void)instance; raise(SIGBUS); }",
        "table.close = broken;",
        "devices",
        "crashed with SIGBUS",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_interface_is_found_by_its_step(
    without_torch: Interpreter,
    defective: Defective,
    defect: str,
) -> None:
    code, change, step, says = DEFECTS[defect]
    _, findings = check(without_torch, defective(code, change), "--timeout", "3")
    assert failed(findings) == [step], findings
    assert says in findings[step]["detail"]
    assert findings[step]["fix"]
    # What was before it has passed, and what comes after it was not reached.
    names = list(findings)
    assert names[0] == "manifest"
    for name in names[1 : names.index(step)]:
        assert findings[name]["status"] == "pass"
    for name in names[names.index(step) + 1 :]:
        assert findings[name]["status"] == "skip"
        if name != "operators":
            assert findings[name]["detail"] == f"not reached: {step} failed"


CAPTURES: dict[str, tuple[str, str, str, str]] = {
    "a graph that does not run": (
        """static int32_t broken(FlagosVendorGraph *graph, FlagosVendorStream *stream) {
             (void)graph, (void)stream;
             return FLAGOS_VENDOR_OK;
           }""",
        "table.graph_launch = broken;",
        "captured-work-is-replayed",
        "a replay gave 0 for 2",
    ),
    "a wait during a capture": (
        """static int32_t broken(FlagosVendorStream *stream) {
             int32_t status = chip.stream_sync(stream);
             return status == FLAGOS_VENDOR_UNSUPPORTED ? FLAGOS_VENDOR_OK : status;
           }""",
        "table.stream_sync = broken;",
        "a-capture-refuses-waits",
        "stream_sync succeeded during a capture",
    ),
}


@pytest.mark.parametrize("defect", CAPTURES)
def test_a_defect_of_captures_is_found_by_its_check(
    without_torch: Interpreter, defective: Defective, defect: str
) -> None:
    code, change, step, says = CAPTURES[defect]
    _, findings = check(without_torch, defective(code, change), "--timeout", TIMEOUT)
    assert step in failed(findings), findings
    assert says in findings[step]["detail"]
    assert findings["work-knows-that-it-is-work"]["status"] == "pass"


def test_checks_after_a_failing_one_still_run(
    without_torch: Interpreter,
    defective: Defective,
) -> None:
    """One library that is wrong in four ways: a wrong copy, a hang, a crash, and an end of the process."""
    code = """
    static int32_t copy(FlagosVendorStream *stream, void *to, const void *from, size_t nbytes, int32_t kind) {
      return chip.stream_copy(stream, to, from, nbytes > 1 ? nbytes - 1 : nbytes, kind);
    }
    static int32_t elapsed(FlagosVendorEvent *start, FlagosVendorEvent *end, double *out) {
      (void)start, (void)end, (void)out;
      raise(SIGFPE);
      return 0;
    }
    static int32_t in_work(FlagosVendorInstance *instance) {
      (void)instance;
      exit(0);
    }
    static int32_t idle(FlagosVendorStream *stream, int32_t *out) {
      (void)stream, (void)out;
      for (;;) pause();
      return 0;
    }
    """
    change = """
    table.stream_copy = copy;
    table.event_elapsed = elapsed;
    table.in_stream_work = in_work;
    table.stream_query = idle;
    """
    _, findings = check(without_torch, defective(code, change), "--timeout", "5")
    details = {name: findings[name]["detail"] for name in failed(findings)}
    assert set(details) == {
        "a-capture-refuses-waits",
        "copies-arrive",
        "sync-waits",
        "time-passes-between-events",
        "work-knows-that-it-is-work",
    }
    assert "differs" in details["copies-arrive"]
    for asks_whether_the_stream_is_idle in ("a-capture-refuses-waits", "sync-waits"):
        assert details[asks_whether_the_stream_is_idle] == "did not finish in 5 s"
    assert details["time-passes-between-events"] == "crashed with SIGFPE"
    assert "ended the process, with status 0" in details["work-knows-that-it-is-work"]
    assert "stream_copy" in findings["copies-arrive"]["fix"]
    assert "gdb" in findings["time-passes-between-events"]["fix"]


def test_a_crash_names_the_step_that_repeats_it(
    without_torch: Interpreter,
    defective: Defective,
) -> None:
    code = (
        "static int32_t quiesce(FlagosVendorInstance *i, int32_t d) { (void)i, (void)d; abort(); }"
    )
    library = defective(code, "table.device_quiesce = quiesce;")
    only = ("--only", "dropped-stream-runs-on")
    _, findings = check(without_torch, library, *only)
    assert list(findings) == [only[1]]
    command = findings[only[1]]["fix"].partition("--args ")[2].split()
    assert command[0] == str(without_torch.python)
    assert without_torch.run(*command[1:]).status == -6


def test_what_is_no_library_is_told(without_torch: Interpreter, tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    for path, says in [(text, "no shared library"), (tmp_path / "libabsent.so", "No such file")]:
        _, findings = check(without_torch, path)
        assert failed(findings) == ["file"], findings
        assert says in findings["file"]["detail"]
        assert set(statuses(findings).values()) == {"fail", "skip"}


def test_a_library_that_is_no_vendor_is_told(without_torch: Interpreter, compiled: Compile) -> None:
    _, findings = check(without_torch, compiled("other", "int something_else;"))
    assert failed(findings) == ["symbols"], findings
    assert "flagos_vendor" in findings["symbols"]["detail"]

    missing = "int missing_everywhere(void); int (*f)(void) = missing_everywhere;"
    _, findings = check(without_torch, compiled("needs", missing))
    assert failed(findings) == ["load"], findings
    assert "missing_everywhere" in findings["load"]["detail"]


def test_a_file_that_others_may_replace_is_refused(
    without_torch: Interpreter,
    chip: Path,
    tmp_path: Path,
) -> None:
    library = tmp_path / "libchip.so"
    shutil.copy(chip, library)
    library.chmod(0o777)
    _, findings = check(without_torch, library)
    assert failed(findings) == ["file"], findings
    assert "every user may write" in findings["file"]["detail"]


def test_a_library_of_another_machine_is_refused(
    without_torch: Interpreter,
    chip: Path,
    tmp_path: Path,
) -> None:
    other = bytearray(chip.read_bytes())
    # The machine of an ELF file: RISC-V, on which no test of flagos runs.
    other[18:20] = (243).to_bytes(2, "little")
    library = tmp_path / "libother.so"
    library.write_bytes(other)
    _, findings = check(without_torch, library)
    assert failed(findings) == ["file"], findings
    assert "RISC-V" in findings["file"]["detail"]


@pytest.mark.parametrize("kept", [9000, 2000, 100])
def test_a_library_that_is_cut_short_is_refused(
    without_torch: Interpreter, chip: Path, tmp_path: Path, kept: int
) -> None:
    library = tmp_path / "libshort.so"
    library.write_bytes(chip.read_bytes()[:kept])
    _, findings = check(without_torch, library)
    assert failed(findings) == ["file"], findings
    assert f"cut short: {kept} bytes are there" in findings["file"]["detail"]


MANIFEST = """
name = "example"
library = "libchip.so"
interface = "1.0"
aliases = ["chip"]
"""


@pytest.fixture
def manifest(chip: Path, tmp_path: Path) -> Path:
    """The manifest of the example chip, beside its library."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    shutil.copy(chip, folder)
    (folder / "example.toml").write_text(MANIFEST)
    return folder / "example.toml"


def test_a_manifest_is_checked_with_its_library(without_torch: Interpreter, manifest: Path) -> None:
    result, findings = check(without_torch, manifest)
    assert result.status == 0, findings
    assert findings["manifest"]["status"] == "pass"
    assert findings["file"]["detail"] == str(manifest.with_name("libchip.so"))


def test_a_vendor_of_a_manifest_is_checked_by_its_name(
    without_torch: Interpreter, manifest: Path
) -> None:
    command = ("vendor", "check", "example", "--json")
    result = without_torch.flagos(*command, FLAGOS_VENDOR_PATH=str(manifest.parent))
    assert result.status == 0, result.out
    assert result.json["steps"][0]["name"] == "manifest"
    assert result.json["steps"][0]["status"] == "pass"


@pytest.mark.parametrize(
    ("change", "step", "says"),
    [
        (("name =", "nmae ="), "manifest", "nmae"),
        (("libchip.so", "libother.so"), "file", "libother.so"),
        (('interface = "1.0"', 'interface = "9.0"'), "file", "version 9.0"),
        (('"example"', '"sample"'), "description", "`sample` in the manifest"),
    ],
)
def test_a_manifest_that_is_wrong_is_told(
    without_torch: Interpreter, manifest: Path, change: tuple[str, str], step: str, says: str
) -> None:
    manifest.write_text(manifest.read_text().replace(*change))
    _, findings = check(without_torch, manifest)
    assert failed(findings) == [step], findings
    assert says in findings[step]["detail"]


def test_a_vendor_of_flagos_is_checked_by_its_name(without_torch: Interpreter) -> None:
    result, findings = check(without_torch, "host", "--timeout", TIMEOUT)
    assert result.status == 0, findings
    assert findings["table"]["status"] == "skip"
    assert findings["probe"]["detail"] == "1 device"
    assert findings["pending-is-exact"]["status"] == "pass"


def test_a_vendor_that_is_not_here_says_why(without_torch: Interpreter) -> None:
    result, findings = check(without_torch, "cuda")
    assert result.status == 1
    assert failed(findings) == ["probe"]
    assert "NVIDIA" in findings["probe"]["detail"]


def test_steps_can_be_listed_and_chosen(without_torch: Interpreter, chip: Path) -> None:
    listed = without_torch.flagos("vendor", "check", "--list")
    assert listed.status == 0
    assert re.search("^time-passes-between-events +the time between", listed.out, re.MULTILINE)
    steps = without_torch.flagos("vendor", "check", "--list", "--json", "--only", "event").json
    assert {"event-follows-its-stream", "time-passes-between-events"} <= {
        step["name"] for step in steps["steps"]
    }
    _, findings = check(without_torch, chip, "--only", "open", "--only", "copies")
    assert statuses(findings) == {"open": "pass", "copies-arrive": "pass"}
    # A whole name is that step alone.
    _, findings = check(without_torch, chip, "--only", "devices")
    assert list(findings) == ["devices"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a library"),
        (["hots"], "host"),
        (["host", "--only", "copies-arive"], "copies-arrive"),
        (["host", "--timeout", "0"], "seconds"),
    ],
)
def test_a_wrong_command_line_is_told(
    without_torch: Interpreter, arguments: list[str], says: str
) -> None:
    result = without_torch.flagos("vendor", "check", *arguments)
    assert result.status == 2
    assert says in result.err and "Traceback" not in result.err


def test_help_teaches_with_an_example(without_torch: Interpreter) -> None:
    result = without_torch.flagos("vendor", "check", "--help")
    assert result.status == 0
    assert "$ flagos vendor check build/libchip.so" in result.out and "--json" in result.out
    assert "check" in without_torch.flagos("vendor", "--help").out
    assert without_torch.flagos("vendor").status == 2


def test_a_crash_leaves_no_core_behind(
    without_torch: Interpreter,
    defective: Defective,
) -> None:
    code = "__attribute__((constructor)) static void loaded(void) { abort(); }"
    library = defective(code, "")
    check(without_torch, library)
    assert not [name for name in os.listdir(without_torch.folder) if name.startswith("core")]


NOISE = """
#include <fcntl.h>
#include <stdio.h>
static void loud(const char *when) {
  printf("%s: half a line {", when);
  printf("\\xff\\xfe {\\"stage\\": 7}\\n[1, 2]\\n{\\"stage\\"");
  fflush(stdout);
  for (int i = 0; i < 20000; i++) fprintf(stderr, "\\xff noise %d\\n", i);
}
__attribute__((constructor)) static void loaded(void) { loud("loaded"); }
static int32_t noisy_probe(int32_t *count) { loud("probe"); return chip.probe(count); }
"""


def test_a_library_may_print_what_it_likes(
    without_torch: Interpreter, defective: Defective
) -> None:
    library = defective(NOISE, "table.probe = noisy_probe;")
    _, findings = check(without_torch, library, "--only", "probe", "--only", "copies-arrive")
    assert statuses(findings) == {"probe": "pass", "copies-arrive": "pass"}


def test_processes_of_a_library_are_ended_with_their_step(
    without_torch: Interpreter, defective: Defective, tmp_path: Path
) -> None:
    """A process that a library leaves behind holds the pipes of the step, and may sleep for long."""
    note = tmp_path / "left_behind"
    code = f"""
    #include <stdio.h>
    __attribute__((constructor)) static void loaded(void) {{
      if (fork() != 0) return;
      FILE *note = fopen("{note}", "a");
      fprintf(note, "%d\\n", (int)getpid());
      fclose(note);
      for (;;) pause();
    }}
    """
    library = defective(code, "")
    _, findings = check(without_torch, library, "--only", "load", "--only", "copies-arrive")
    assert statuses(findings) == {"load": "pass", "copies-arrive": "pass"}
    left = [int(line) for line in note.read_text().split()]
    assert len(left) == 2
    assert not [process for process in left if runs(process)]


def runs(process: int) -> bool:
    """Whether a process exists that has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("only", ["copies-arrive", "devices", "open"])
def test_a_step_that_is_not_reached_is_no_success(
    without_torch: Interpreter, defective: Defective, only: str
) -> None:
    code = "__attribute__((constructor)) static void loaded(void) { abort(); }"
    result, findings = check(without_torch, defective(code, ""), "--only", only)
    assert result.status == 1
    assert statuses(findings) == {"load": "fail", only: "skip"}


def test_an_interrupt_ends_the_vendor_too(without_torch: Interpreter, defective: Defective) -> None:
    note = without_torch.folder / "begun"
    code = f"""
    #include <stdio.h>
    __attribute__((constructor)) static void loaded(void) {{
      FILE *note = fopen("{note}.new", "w");
      fprintf(note, "%d", (int)getpid());
      fclose(note);
      rename("{note}.new", "{note}");
      for (;;) pause();
    }}
    """
    library = defective(code, "")
    command = [str(without_torch.python), "-m", "flagos", "vendor", "check", str(library)]
    checking = subprocess.Popen(
        command, cwd=without_torch.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    vendor = int(note.read_text())
    checking.send_signal(signal.SIGINT)
    out, error = checking.communicate(timeout=60)
    assert checking.returncode == 130, (out, error)
    assert error == "\n"
    assert not runs(vendor)


def test_a_reader_may_have_enough(without_torch: Interpreter) -> None:
    """As `flagos vendor check --list | head` does, which reads a line and goes."""
    unread, written = os.pipe()
    os.close(unread)
    ended = subprocess.run(
        [str(without_torch.python), "-m", "flagos", "vendor", "check", "--list"],
        cwd=without_torch.folder,
        stdout=written,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(written)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")

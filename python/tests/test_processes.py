"""Child processes: whatever a child does, its parent goes on, and nothing of the child is left behind."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flagos.processes import ending, pool, reports
from flagos.processes.child import Child, Tail, run
from flagos.processes.ending import Ending, MemoryWatch

LONG = 60.0


def python(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def gone(pid: int) -> bool:
    """Waits until a process has ended that is no child of this one, or its zombie waits for init."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], LONG)[0])
    finally:
        os.close(descriptor)


# ---- how a process ends


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pass", "status 0"),
        ("raise SystemExit(3)", "status 3"),
        ("import os; os.abort()", "SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), 40)", "signal 40"),
    ],
)
def test_an_ending_has_a_name(text: str, name: str) -> None:
    done = run(python(text), deadline=LONG)
    assert str(done.ending) == name
    assert done.ending.deadline is None


def test_a_child_that_hangs_and_ignores_sigterm_ends_at_its_deadline() -> None:
    text = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        time.sleep(1000)
    """
    with Child(python(text), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(stop=lambda: True) is None and child.running()
        assert child.wait(0.2) == Ending(-signal.SIGKILL, deadline=0.2)
        assert str(child.wait()) == "SIGKILL after 0.2 s"
    assert not child.running()


def test_grandchildren_end_with_the_block() -> None:
    text = """
        import subprocess, sys
        sleeps = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        print(sleeps.pid, flush=True)
    """
    with Child(python(text), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert child.wait() == Ending(0)
        os.kill(grandchild, 0)  # it is still there
    assert gone(grandchild)


def test_an_exception_in_the_block_ends_the_child() -> None:
    with pytest.raises(KeyboardInterrupt), Child(python("import time; time.sleep(1000)")) as child:
        raise KeyboardInterrupt
    assert child.wait() == Ending(-signal.SIGKILL)


def test_a_child_can_die_with_a_parent_that_is_killed() -> None:
    text = """
        import subprocess, sys, time
        from flagos.processes.child import Child
        with Child([sys.executable, "-c", "import time; time.sleep(1000)"], dies_with_parent=True) as child:
            print(child.pid, flush=True)
            time.sleep(1000)
    """
    with Child(python(text), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        assert gone(child)


def test_the_memory_killer_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    monkeypatch.setattr(ending, "_counters", lambda: [tmp_path / "missing", counter])
    watch = MemoryWatch()
    assert str(watch.ending(-signal.SIGKILL)) == "SIGKILL"
    counter.write_text("low 0\noom 5\noom_kill 4\noom_group_kill 0\n")
    assert str(watch.ending(-signal.SIGKILL)) == "SIGKILL, out of memory"
    assert str(watch.ending(-signal.SIGSEGV)) == "SIGSEGV"


# ---- output


def test_a_flood_of_output_is_read_and_its_end_stays() -> None:
    text = """
        import sys
        for number in range(400_000):
            sys.stdout.write(f"{number:>59}\\n")
        sys.stderr.write("the last words")
    """
    done = run(python(text), deadline=LONG)
    assert done.ending == Ending(0)
    assert len(done.output) <= 4 << 20 and done.output.endswith(f"{399_999:>59}\n")
    assert done.errors == "the last words"


def test_a_tail_has_whole_lines_and_at_least_the_last() -> None:
    tail = Tail(10)
    for line in (b"12345\n", b"123\n", b"456\n"):
        tail.add(line)
    assert tail.text() == "123\n456\n"
    tail.add(b"x" * 30)
    assert tail.text() == "x" * 30


def test_output_that_another_session_holds_open_is_not_waited_for() -> None:
    text = """
        import subprocess, sys
        away = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
        print(away.pid)
    """
    began = time.monotonic()
    done = run(python(text), deadline=LONG)
    assert done.ending == Ending(0)
    assert time.monotonic() - began < LONG
    assert gone(int(done.output))  # its input ended with the child


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(FileNotFoundError):
        run(["no-such-command"], deadline=LONG)


# ---- reports of modules


@pytest.fixture
def module(tmp_path: Path) -> Any:
    def write(text: str) -> partial[reports.Outcome]:
        (tmp_path / "made_up.py").write_text(textwrap.dedent(text))
        path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
        return partial(reports.run_module, "made_up", environment={"PYTHONPATH": path})

    return write


def test_reports_arrive_before_a_crash_and_among_other_lines(module: Any) -> None:
    outcome = module(
        """
        import os
        from flagos.processes.reports import report
        print("a library says hello, and ", end="")
        report("first", number=1)
        print("[1, 2]")
        os.abort()
        """
    )(timeout=LONG)
    assert outcome.reports == [{"stage": "first", "number": 1}]
    assert outcome.report("second") is None
    assert outcome.failure == "crashed with SIGABRT"


def test_the_failure_of_a_module_is_its_last_line_of_errors(module: Any) -> None:
    assert module("raise ValueError('bad')")(timeout=LONG).failure == "ValueError: bad"
    assert module("raise SystemExit(4)")(timeout=LONG).failure == "ended with status 4"
    late = module("import time; time.sleep(1000)")(timeout=0.2)
    assert late.failure == "did not finish in 0.2 s"


# ---- programs in the foreground


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_in_the_foreground_gets_signals(number: int) -> None:
    program = """
        import signal, sys, time
        def leave(number, _):
            sys.exit(number + 100)
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, leave)
        print("ready", flush=True)
        time.sleep(1000)
    """
    text = f"""
        from flagos.processes import foreground
        print("status", foreground.run({python(program)!r}), flush=True)
    """
    with Child(python(text), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        os.kill(child.pid, number)
        assert child.stdout.readline() == f"status {number + 100}\n".encode()
        assert child.wait(LONG) == Ending(0)


# ---- the pool


def _task(name: str, report: pool.Report) -> Any:
    report("the first step", {"found": 1})
    faulthandler.disable()
    if name == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "leaves":
        os._exit(3)
    if name == "raises":
        raise ValueError("of its own")
    if name == "forks":
        report("forked", subprocess.Popen(["sleep", "1000"]).pid)
    if name in ("hangs", "forks"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
    if name == "slow":
        for step in range(4):
            report(f"step {step}", {"found": step})
            time.sleep(0.4)
    print("what a task prints goes nowhere")
    return name.upper()


def test_a_task_costs_at_most_its_own_process(capfd: pytest.CaptureFixture[str]) -> None:
    names = ["one", "crashes", "hangs", "leaves", "raises", "slow", "forks", "two"]
    ended = {one.name: one for one in pool.run([*names], _task, 3, step_seconds=1)}
    assert sorted(ended) == sorted(names)
    assert {ended[name].result for name in ("one", "two", "slow")} == {"ONE", "TWO", "SLOW"}
    assert ended["crashes"].failure == "the process ended with SIGSEGV"
    assert ended["leaves"].failure == "the process ended with status 3"
    assert ended["raises"].failure == "the process ended with status 1"
    assert ended["hangs"].late and ended["hangs"].failure == "it took longer than 1 s"
    assert ended["hangs"].step == "the first step" and ended["hangs"].partial == {"found": 1}
    assert ended["forks"].step == "forked" and gone(ended["forks"].partial)
    assert capfd.readouterr().out == ""


def test_the_end_of_the_output_can_be_had() -> None:
    (one,) = pool.run(["raises"], _task, 1, LONG, capture_output=True)
    assert one.output.splitlines()[-1] == "ValueError: of its own"


def test_a_process_prepares_once_and_serves_as_long_as_it_may() -> None:
    prepared: list[int] = []

    def task(name: str, _: pool.Report) -> tuple[int, int]:
        return os.getpid(), len(prepared)

    ended = list(
        pool.run(
            ["one", "two"], task, 1, LONG, prepare=lambda: prepared.append(1), reuse=lambda: True
        )
    )
    assert ended[0].result == ended[1].result and ended[0].result[1] == 1


def test_a_name_that_is_added_runs_before_the_rest_has_ended() -> None:
    todo = ["leaves", "slow"]
    order = []
    for one in pool.run(todo, _task, 2, LONG):
        order.append(one.name)
        if order == ["leaves"]:
            todo.insert(0, "one")
    assert order == ["leaves", "one", "slow"]


def test_closing_kills_what_runs() -> None:
    running = pool.run(["one", "hangs"], _task, 2, LONG)
    assert next(running).name == "one"
    assert multiprocessing.active_children()
    running.close()
    assert not multiprocessing.active_children()


def test_processes_of_a_pool_die_with_a_parent_that_is_killed() -> None:
    reading, writing = os.pipe()
    text = f"""
        import os, time
        from flagos.processes import pool
        def task(name, report):
            os.write({writing}, b"%d\\n" % os.getpid())
            time.sleep(1000)
        list(pool.run(["one"], task, 1, 1000))
    """
    with os.fdopen(reading) as pipe, Child(python(text), pass_fds=[writing]) as parent:
        os.close(writing)
        worker = int(pipe.readline())
        os.kill(parent.pid, signal.SIGKILL)
        assert gone(worker)


def test_nothing_is_lost_when_the_time_is_up() -> None:
    names = ["one", "hangs", "two", "hangs too"]
    ended = {one.name: one for one in pool.run([*names], _task, 1, LONG, seconds=1.5)}
    assert sorted(ended) == sorted(names)
    assert ended["one"].result == "ONE"
    assert ended["hangs"].over and ended["hangs"].seconds > 0 and ended["two"].over

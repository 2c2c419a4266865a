"""A program that ends with a backward ends well, although autograd's thread is not at rest yet."""

from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from torch_fl import autograd_at_exit

PROGRAM = """
import torch
layer = torch.nn.Linear(4, 4).to("flagos")
layer(torch.ones(3, 4, device="flagos")).sum().backward()
"""


@pytest.mark.slow
def test_a_program_may_end_with_a_backward() -> None:
    # Without the wait, half of these abort with torch 2.12 and later.
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr


def named(name: str, body: Callable[[], None]) -> threading.Thread:
    """A thread of that name as Linux knows it, which runs `body`."""
    ready = threading.Event()

    def run() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        ready.set()
        body()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    return thread


def waited(name: str, body: Callable[[], None], end: threading.Event) -> float:
    thread = named(name, body)
    began = time.monotonic()
    autograd_at_exit.let_rest()
    took = time.monotonic() - began
    end.set()
    thread.join()
    return took


def test_a_thread_that_computes_is_waited_for_and_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autograd_at_exit, "_LIMIT_S", 0.5)
    end, data = threading.Event(), bytes(1 << 24)

    def spin() -> None:
        while not end.is_set():
            hashlib.sha256(data)  # without the GIL, as autograd does

    assert waited("pt_autograd_7", spin, end) >= 0.2
    end.clear()
    assert waited("pt_other_7", spin, end) < 0.2


def test_a_thread_that_waits_for_work_is_left_alone() -> None:
    end = threading.Event()

    def wait() -> None:
        end.wait(20)

    assert waited("pt_autograd_7", wait, end) < 1.0


def test_threads_that_cannot_be_seen_are_given_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    def listdir(path: str) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr(autograd_at_exit.os, "listdir", listdir)
    ran = threading.Event()
    threading.Timer(0.01, ran.set).start()
    autograd_at_exit.let_rest()
    assert ran.is_set()


def test_a_program_without_free_file_descriptors_ends_in_silence(run_python):
    done = run_python(
        """
        import resource, time, torch
        x = torch.ones(2, device="flagos", requires_grad=True)
        (x * 2).sum().backward()
        time.sleep(1)  # a busy machine may need longer than what is waited blindly
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        """,
        fresh=True,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.host  # torch with CUDA lets such a child wait, and a program that never names flagos is torch's alone
def test_a_forked_child_does_not_wait_for_its_parents_threads(run_python) -> None:
    done = run_python(
        """
        import os, sys, time, torch
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        began = time.monotonic()
        if not (child := os.fork()):
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print(status, time.monotonic() - began)
        """,
        fresh=True,
        TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT="90",
    )
    status, took = done.stdout.split()
    assert status == "0" and float(took) < 60, done.stderr

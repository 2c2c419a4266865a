"""A process forked after the device was used."""

from __future__ import annotations

import pytest

PRELUDE = """
import os, sys, torch
def child(body):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            body()
            sys.stdout.flush()
            os._exit(0)
        except BaseException as error:
            print(type(error).__mro__[-3].__name__, type(error).__name__, error)
            sys.stdout.flush()
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
"""


@pytest.mark.parametrize(
    "use",
    [
        "torch.ones(2, device='flagos')",
        "x + 1",
        "torch.flagos.init()",
        "torch.flagos.current_device()",
        # CUDA's own allocator pins under the cuda vendor, and fails in CUDA's words.
        pytest.param("torch.ones(2).pin_memory()", marks=pytest.mark.host),
    ],
)
def test_using_the_device_in_the_child_is_an_error(use, run_python):
    script = f"""{PRELUDE}
x = torch.ones(2, device="flagos")
print("exit", child(lambda: {use}))
print("parent", x.sum().item())
"""
    out = run_python(script).stdout
    assert "exit 3" in out and "fork" in out and "spawn" in out
    assert "parent 2.0" in out


def test_the_child_may_use_the_cpu_and_let_tensors_go(run_python):
    script = f"""{PRELUDE}
x = torch.ones(2, device="flagos")
torch.flagos.device_count()  # torch.cuda tells a forked child only a count that it was asked for before
def body():
    global x
    torch.manual_seed(0)
    del x
    print(torch.flagos._is_in_bad_fork(), torch.randn(2).shape[0], torch.flagos.device_count())
print("exit", child(body), torch.flagos.device_count())
"""
    out = run_python(script).stdout
    devices = out.split()[-1]
    assert f"True 2 {devices}" in out and f"exit 0 {devices}" in out


def test_a_child_forked_before_the_first_use_may_use_the_device(run_python):
    script = f"""{PRELUDE}
torch.manual_seed(0)
def body():
    print("child", torch.ones(2, device="flagos").sum().item())
print("exit", child(body))
print("parent", torch.ones(3, device="flagos").sum().item())
"""
    out = run_python(script).stdout
    assert "child 2.0" in out and "exit 0" in out and "parent 3.0" in out


def test_spawned_processes_use_the_device(tmp_path, run_python):
    script = tmp_path / "spawned.py"
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(rank, results):\n"
        "    results[rank] = torch.full((3,), rank, device='flagos').sum().cpu()\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(1, device='flagos')\n"
        "    results = torch.zeros(2, dtype=torch.int64).share_memory_()\n"
        "    mp.spawn(work, (results,), nprocs=2)\n"
        "    print(results.tolist())\n"
    )
    out = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert out.stdout.strip() == "[0, 3]"

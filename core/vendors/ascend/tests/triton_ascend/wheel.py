"""Programs on triton-ascend's wheel and the simulated chip, each in a process of its own.

ASCEND_TRITON_PATH names the folder into which the wheel is installed (`make test-ascend-triton`). The wheel is for
Python 3.11: programs run in the interpreter that ASCEND_TRITON_PYTHON names, or that is found. If torch can be imported
there, the programs use it with the real torch_fl; otherwise `doubles/torch`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[4]
WHEEL = "ASCEND_TRITON_PATH"
PYTHON = "ASCEND_TRITON_PYTHON"
VERSION = "3.11"

# Bytes of a kernel's arguments: 0 FFTS, 8 locks, 16 workspace, then its own ones, then the grid.
BINARIES = {
    "add": "add 40 24 32 48",
    "slow_add": "sleep 300000\nadd 40 24 32 48",
    "locked": "take 8 2 0",
    "works": "fill 16 128 5\nsleep 20000\nhold 16 128 5",
    "works_too": "fill 16 128 6\nsleep 20000\nhold 16 128 6",
    "greedy": "fill 16 128 7",
    "fails": "fail 507015",
}
# What the compiler tells of kernels: functions of a library beside the binary.
TOLD = """
long locked_infer_sync_block_lock_num_function(void) { return 2; }
long works_infer_workspace_shape_function(void) { return 64; }
long works_too_infer_workspace_shape_function(void) { return 64; }
long greedy_infer_workspace_shape_function(void) { return 1L << 40; }
"""

PRELUDE = """

import ctypes, os, sys, threading, time
runtime = ctypes.CDLL("libruntime.so", ctypes.RTLD_GLOBAL)
acl = ctypes.CDLL("libascendcl.so", ctypes.RTLD_GLOBAL)  # a chip without a device file is one that is loaded
for name in ("queued", "finished", "synchronised", "last"):
    globals()[name] = getattr(runtime, f"simulated_ascend_rt_{name}")
    globals()[name].restype = ctypes.c_uint64
import torch, triton
flagos = torch.flagos
def there(values):
    return torch.tensor([float(value) for value in values], dtype=torch.float32).to("flagos")
def back(tensor):
    return tensor.cpu().tolist()
def raised(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")
"""


@cache
def interpreter() -> str | None:
    """A Python of the wheel's version with headers."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = os.environ.get(PYTHON)
    candidates = [named] if named else [sys.executable, f"python{VERSION}"]
    if not named:
        candidates += map(str, sorted(pyenv.glob(f"{VERSION}.*/bin/python")))
    check = (
        "import os, sys, sysconfig; "
        f"sys.exit('%d.%d' % sys.version_info[:2] != '{VERSION}' or "
        "not os.path.exists(sysconfig.get_paths()['include'] + '/Python.h'))"
    )
    for candidate in filter(shutil.which, candidates):
        if subprocess.run([candidate, "-c", check], capture_output=True).returncode == 0:
            return candidate
    return None


@cache
def has_torch() -> bool:
    """Whether the interpreter has torch itself."""
    command = [interpreter() or "", "-c", "import torch"]
    return subprocess.run(command, capture_output=True).returncode == 0


def why_not() -> str | None:
    """Why programs cannot run here."""
    if not os.environ.get(WHEEL):
        return f"{WHEEL} names no folder with triton-ascend (make test-ascend-triton)"
    if interpreter() is None:
        return f"triton-ascend's wheel is for Python {VERSION}; none with headers was found ({PYTHON} names one)"
    return why_no_chip()


def why_no_chip() -> str | None:
    """Why nothing can run on the simulated chip here."""
    if find_spec("flagos") is None or find_spec("torch_fl") is None:
        return "flagos and torch_fl are not installed"
    if shutil.which("g++") is None:
        return "there is no g++"
    return None


def _installed(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


@dataclass
class Finished:
    """What a program printed, and what the simulated chip has recorded of it."""

    output: str
    report: list[str]


class Chip:
    """The simulated chip, CANN and its compiler, in a folder."""

    def __init__(self, folder: Path, cann: Path, wheel: Path, python: str, *, real: bool) -> None:
        """`wheel` is the folder with Triton, and `python` runs the programs: with torch itself if `real`."""
        self.folder, self.cann, self.wheel, self.python = folder, cann, wheel, python
        binaries = folder / "kernels"
        binaries.mkdir(parents=True)
        source = folder / "told.c"
        source.write_text(TOLD)
        command = ["g++", "-x", "c", "-shared", "-fPIC", "-o", str(folder / "told.so"), str(source)]
        subprocess.run(command, check=True)
        for name, text in BINARIES.items():
            (binaries / name).write_text(text)
            shutil.copy(folder / "told.so", binaries / f"{name}.so")
        self.packages = folder / "packages"
        self.packages.mkdir()
        flagos = _installed("flagos")
        links = [flagos, _installed("torch_fl_cli"), _installed("flagos_ascend")]
        links += flagos.parent.glob("flagos_ascend-*.dist-info")
        if real:
            links += [_installed("torch_fl"), *flagos.parent.glob("flagos-*.dist-info")]
            links += _installed("torch_fl").parent.glob("torch_fl-*.dist-info")
        else:
            links += (HERE / "doubles").iterdir()
        for link in links:
            (self.packages / link.name).symlink_to(link)
        shutil.copy(HERE / "kernels.py", self.packages)

    def run(self, program: str, before: str = "", **variables: str) -> Finished:
        """Runs a program after `PRELUDE`, with these variables. Fails unless it ends well."""
        file, report = self.folder / "program.py", self.folder / "report"
        file.write_text(before + PRELUDE + program)
        report.write_text("")
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("FLAGOS_", "TRITON_", "SIMULATED_ASCEND_", "ASCEND_"))
        }
        environment |= {
            "PATH": f"{HERE / 'bin'}:{environment['PATH']}",
            "PYTHONPATH": f"{self.packages}:{self.wheel}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": str(self.cann / "lib64"),
            "ASCEND_HOME_PATH": str(self.cann),
            "SIMULATED_KERNELS": str(self.folder / "kernels"),
            "SIMULATED_ASCEND_REPORT": str(report),
            "TRITON_CACHE_DIR": str(self.folder / "cache"),
            "FLAGOS_VENDOR": "ascend",
            "FLAGOS_LOG": "off",
            "CORE_HEADER": str(ROOT / "core/include/flagos.h"),
            **variables,
        }
        done = subprocess.run(
            [self.python, str(file)], env=environment, capture_output=True, text=True, timeout=120
        )
        said = f"ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, said
        # The core asks threads for a context that they may not have.
        asked = ("aclrtGetCurrentContext: the thread has no", "aclrtGetDevice: the thread has no")
        lines = [line for line in report.read_text().splitlines() if not line.startswith(asked)]
        return Finished(done.stdout, lines)

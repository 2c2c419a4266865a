"""Whether triton-ascend can be used with flagos: what `flagos ascend triton` looks at."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from flagos.doctor.check import Check, Status, fail, ok, warn
from flagos.doctor.installation import installed_version
from flagos.processes.reports import run_module

VENDOR = "ascend"
INSTALL = "pip install --no-deps triton-ascend==3.2.0 pybind11 (the wheel is for Python 3.11)"
#: Versions with whose driver flagos was tested, the newest last.
TESTED = "3.2.0, 3.2.1 and 3.5.0"
_SOURCE = "source set_env.sh of CANN's toolkit"
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def is_vendors_back_end() -> bool:
    """Whether the vendor in use has the back end that triton-ascend is."""
    from flagos import _core

    try:
        return _core.vendor_info()["triton_backend"] == VENDOR
    except _core.FlagosError:
        return False


def package() -> Path | None:
    """The folder of the package `triton` that programs would import, which is not imported here."""
    spec = find_spec("triton")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def way() -> str | None:
    """How flagos gets into the installed triton-ascend; None without one."""
    folder = package()
    if folder is None or not (folder / "backends/ascend/driver.py").is_file():
        return None
    registry = (folder / "backends/ascend/backend_register.py").is_file()
    return "its registry of frameworks" if registry else "a driver made active in memory"


def static() -> Iterator[Check]:
    """The checks that start nothing."""
    yield _vendor()
    yield _version()
    yield _package()
    yield _torch_npu()
    yield _pybind()
    yield _toolkit()
    yield _kernel_compiler()
    yield _launcher_compiler()


def driver(timeout: float) -> Check:
    """Imports torch and Triton in a process, and makes the driver. `timeout` is in seconds."""
    outcome = run_module("torch_fl_cli.doctor.probe_triton", timeout=timeout)
    facts = outcome.report("driver")
    if facts is None:
        stage = "imports" if outcome.report("imported") else "does not import"
        return fail(
            "driver",
            f"Triton {stage}, and its driver cannot be made: {outcome.failure}",
            "the failure says what is missing; `flagos doctor` checks torch and the device",
        )
    detail = f"{facts['driver']} for {facts['target']}, {facts['devices']} devices"
    return ok("driver", detail, target=facts["target"], devices=facts["devices"])


def failed(checks: list[Check]) -> Check | None:
    """The first check that failed."""
    return next((check for check in checks if check.status is Status.FAIL), None)


def _vendor() -> Check:
    from flagos import _core

    try:
        name = _core.vendor_info()["name"]
    except _core.FlagosError as error:
        return fail(
            "vendor", str(error), "`flagos devices` lists vendors, and why each is not used"
        )
    if name != VENDOR:
        return fail(
            "vendor",
            f"{name} serves the device, and triton-ascend is for {VENDOR}",
            f"on a machine with Ascend devices set FLAGOS_VENDOR={VENDOR}; `flagos devices` says what there is",
            vendor=name,
        )
    return ok("vendor", name, vendor=name)


def _version() -> Check:
    name, version = "triton-ascend", installed_version("triton-ascend")
    if version is None:
        return fail(name, "not installed", INSTALL, version=None)
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(.*)", version)
    known = tuple(int(number or 0) for number in numbers.groups()[:3]) if numbers else (0, 0, 0)
    if known < (3, 2, 0) or (numbers and known == (3, 2, 0) and numbers[4].startswith("rc")):
        return fail(
            name,
            f"{version} is older than 3.2.0, the first version that flagos knows",
            INSTALL,
            version=version,
        )
    if known[:2] > (3, 5):
        return warn(
            name,
            f"{version} is newer than what flagos was tested with ({TESTED})",
            "if a launch fails, install one of these versions",
            version=version,
        )
    return ok(name, f"{version}, by {way() or 'nothing'}", version=version)


def _package() -> Check:
    name, folder, other = "package triton", package(), installed_version("triton")
    both = f"triton {other} is installed too, and has the same files" if other else ""
    again = f"pip uninstall triton triton-ascend, then {INSTALL}"
    if folder is None:
        return fail(name, "there is none", INSTALL)
    if way() is None:
        return fail(name, f"{folder} has no back end for Ascend; {both}".rstrip("; "), again)
    if both:
        return fail(name, both, again, other=other)
    return ok(name, str(folder))


def _torch_npu() -> Check:
    version = installed_version("torch-npu") or installed_version("torch_npu")
    if version is None:
        return ok("torch_npu", "not installed, and not needed", version=None)
    detail = f"{version} is installed, and takes the device type that flagos needs (PrivateUse1)"
    remedy = "use an environment without torch_npu: pip uninstall torch_npu"
    if os.environ.get(_AUTOLOAD) == "0":
        detail += f" in programs that import it; {_AUTOLOAD}=0 keeps `import torch` from that"
        return warn("torch_npu", detail, remedy, version=version)
    return fail("torch_npu", f"{detail} in every `import torch`", remedy, version=version)


def _pybind() -> Check:
    if find_spec("pybind11") is None:
        detail = "not installed: triton-ascend imports it, and does not name it as needed"
        return fail("pybind11", detail, "pip install pybind11")
    return ok("pybind11", installed_version("pybind11") or "found")


def _toolkit() -> Check:
    name, home = "CANN", os.environ.get("ASCEND_HOME_PATH")
    if not home:
        return fail(name, "ASCEND_HOME_PATH is not set", _SOURCE)
    folder = Path(home)
    headers = [folder / part / "runtime/runtime/rt.h" for part in ("include/experiment", "pkg_inc")]
    if not any(header.is_file() for header in headers):
        detail = f"{home} has no runtime/runtime/rt.h, which launchers of kernels need"
        return fail(name, detail, f"install CANN's toolkit, not its runtime alone, and {_SOURCE}")
    for library in ("libruntime.so", "libascendcl.so"):
        if not (folder / "lib64" / library).exists():
            return fail(name, f"{home}/lib64 has no {library}", f"{_SOURCE} of a whole toolkit")
    return ok(name, home)


def _kernel_compiler() -> Check:
    name, folder = "kernel compiler", package()
    bundled = folder / "backends/ascend/bishengir/bin/bishengir-compile" if folder else None
    found = (str(bundled) if bundled and bundled.is_file() else None) or shutil.which(
        "bishengir-compile"
    )
    named = os.environ.get("TRITON_NPU_COMPILER_PATH")
    if found is None and named and (Path(named) / "npuc").is_file():
        found = str(Path(named) / "npuc")
    if found is None:
        detail = "bishengir-compile, which compiles kernels, is not on PATH"
        return fail(name, detail, f"{_SOURCE}, or name its folder by TRITON_NPU_COMPILER_PATH")
    return ok(name, found)


def _launcher_compiler() -> Check:
    name = "launcher compiler"
    compiler = os.environ.get("CC") or shutil.which("clang++") or shutil.which("g++")
    if not compiler or shutil.which(compiler) is None:
        return fail(
            name,
            f"no C++ compiler ({compiler or 'clang++ or g++'}): each kernel's launcher is compiled",
            "apt-get install g++, or name a compiler by CC",
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        return fail(
            name, f"there is no {header}", "install Python's headers: apt-get install python3-dev"
        )
    return ok(name, compiler)

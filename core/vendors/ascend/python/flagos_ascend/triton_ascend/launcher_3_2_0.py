"""Launchers of kernels by triton-ascend 3.2.0, whose driver has no extension point.

Its module generates C++ for each kernel's signature, and compiles it. The functions that name torch_npu there are
replaced in memory. The C++ itself stays triton-ascend's, with those of its lines replaced that are torch_npu's, so that
the layout of a kernel's arguments stays what its compiler expects.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from flagos_ascend.triton_ascend import source

_HEADER = f"""#ifndef FLAGOS_TRITON_LAUNCHER
#define FLAGOS_TRITON_LAUNCHER
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "runtime/runtime/rt.h"
#include <acl/acl.h>
{source.HEADERS}
#endif
"""

# A line of the generated C++ → what replaces it. Spaces between words stand for any white space.
_REPLACED = {
    "auto optionsWorkspace = at::TensorOptions().device(at::kPrivateUse1).dtype(at::kByte);": "",
    "at::Tensor workspace_tensor = at::empty(totalWorkSpaceSize, optionsWorkspace);": source.memory(
        "workspace", "totalWorkSpaceSize", "workspace_addr_ptr"
    ),
    "workspace_addr_ptr = const_cast<void *>(workspace_tensor.storage().data());": (
        "if (workspace_addr_ptr == nullptr) return;"
    ),
    # The value is compared before the first call that sets it, on chips without FFTS.
    "rtError_t ret;": "rtError_t ret = RT_ERROR_NONE;",
    "at::Tensor syncBlockLock_tensor = at_npu::native::allocate_workspace(syncBlockLockSize, stream);": (
        source.memory("locks", "syncBlockLockSize", "syncBlockLock_ptr")
    ),
    "syncBlockLock_ptr = const_cast<void *>(syncBlockLock_tensor.storage().data());": "",
    "at_npu::native::OpCommand cmd; cmd.Name(name.c_str()).SetCustomHandler(launch_call).Run();": (
        source.launch("launch_call")
    ),
    # With TRITON_ENABLE_TASKQUEUE=false, which asks to wait for each kernel.
    "ret = rtStreamSynchronize(stream);": (
        "if (ret == RT_ERROR_NONE) ret = rtStreamSynchronize(stream);\n"
        "    flagos::launched(name.c_str(), ret);"
    ),
}


def rewritten(text: str) -> str:
    """The generated C++ of a launcher without torch and torch_npu.

    Raises RuntimeError if any of them is left, which then is another version of the driver.
    """
    for line, replacement in _REPLACED.items():
        pattern = r"\s+".join(map(re.escape, line.split()))
        text = re.sub(pattern, lambda _, by=replacement: by, text)  # type: ignore[misc]
    if left := re.search(r"^.*\b(?:at|at_npu|c10|torch|torch_npu)(?:::|/).*$", text, re.MULTILINE):
        raise RuntimeError(
            "the launchers of this triton-ascend are not those of 3.2.0, which flagos knows: found "
            f"`{left[0].strip()}`; install triton-ascend 3.2.0, or 3.2.1 or later"
        )
    return text


def compiler() -> str:
    """The C++ compiler, as triton-ascend chooses it: CC, clang++, g++."""
    found = os.environ.get("CC") or shutil.which("clang++") or shutil.which("g++")
    if not found:
        raise RuntimeError(
            "triton-ascend compiles a launcher for each kernel, and there is no C++ compiler: install g++ or "
            "clang++, or name one by CC"
        )
    return found


def toolkit() -> Path:
    """CANN's folder. Raises RuntimeError if ASCEND_HOME_PATH does not name it."""
    folder = os.environ.get("ASCEND_HOME_PATH")
    if not folder or not Path(folder).is_dir():
        raise RuntimeError(
            f"ASCEND_HOME_PATH={folder or ''} is not the folder of CANN, whose headers launchers of Triton kernels "
            "need: source set_env.sh of CANN's toolkit"
        )
    return Path(folder)


def include_folders(cann: Path) -> list[Path]:
    """The folders of CANN with headers for launchers. `experiment` is older than `pkg_inc`."""
    folders = [cann / "include", cann / "include/experiment", cann / "include/experiment/msprof"]
    if not (cann / "include/experiment/runtime/runtime/rt.h").exists():
        folders = [cann / "pkg_inc", cann / "pkg_inc/profiling", *folders]
    return folders


@functools.cache
def renamed_limits(cann: Path) -> tuple[str, ...]:
    """Definitions for the compiler where CANN has renamed what npu_utils.cpp of 3.2.0 uses (CANN 9.0.0)."""
    old, new = "RT_LIMIT_TYPE_SIMT_WARP_STACK_SIZE", "RT_LIMIT_TYPE_SIMT_STACK_SIZE"
    text = "".join(
        file.read_text(errors="replace")
        for folder in include_folders(cann)
        for file in sorted((folder / "runtime/runtime").glob("*.h"))
    )
    return (f"-D{old}={new}",) if old not in text and new in text else ()


def build(
    name: str,
    header: str | None,
    file: str,
    *,
    kernel_launcher: str | None = None,
    precompile: bool = False,
) -> str:
    """Compiles an extension module beside its source, and returns its path. In the place of `_build_npu_ext`.

    Raises RuntimeError with the compiler's output.
    """
    cann = toolkit()
    target = Path(file).with_name(f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme has no headers of Python.
    python = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"]
    folders = [python, *include_folders(cann)]
    if header is not None:
        folders.insert(0, str(Path(header).parent))
    command = [
        *(compiler(), "-std=c++17", "-O1", "-w", "-shared", "-fPIC"),
        *(f"-I{folder}" for folder in folders),
        *renamed_limits(cann),
        *("-o", str(target), file),
        *(f"-L{cann / 'lib64'}", "-lruntime", "-lascendcl"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"the launcher {file} does not compile against CANN in {cann} "
            f"(is it a toolkit with headers?):\n{' '.join(command)}\n{done.stderr}"
        )
    return str(target)


def _hash(header: str) -> str:
    """The key under which the header is kept. In the place of `_precompile_npu_hash`."""
    parts = [header, compiler(), sys.version, toolkit().name]
    return hashlib.sha256("_".join(parts).encode()).hexdigest()


def install(module: ModuleType) -> None:
    """Replaces the functions in the driver's module that name torch_npu. Idempotent."""
    original: Callable[..., str] = module.generate_npu_wrapper_src
    if getattr(original, "flagos", False):
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> str:
        return rewritten(original(*args, **kwargs))

    replacements = {
        "generate_npu_wrapper_src": wrapper,
        "generate_npu_header_src": lambda: _HEADER,
        "_build_npu_ext": build,
        "_precompile_npu_hash": _hash,
        # The header is small: it is included as it is.
        "_precompile_npu_ext": lambda path: path,
        "_check_cxx11_abi": lambda: 1,
    }
    if missing := [name for name in replacements if not hasattr(module, name)]:
        raise RuntimeError(
            f"the driver of this triton-ascend has no {', '.join(missing)}, so it is not that of 3.2.0, which flagos "
            "knows: install triton-ascend 3.2.0, or 3.2.1 or later"
        )
    wrapper.flagos = True  # type: ignore[attr-defined]
    vars(module).update(replacements)

"""The framework that is asked, and how launchers are compiled."""

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from .backend_register import backend_strategy_registry

backend_policy = None


def get_backend_func(name: str, *args: Any, **kwargs: Any) -> Any:
    global backend_policy
    if backend_policy is None:
        backend_policy = "torch_npu"
    return backend_strategy_registry.execute_func(backend_policy, name, *args, **kwargs)


def _build_npu_ext(name: str, source: Path) -> Path:
    cann = Path(os.environ["ASCEND_HOME_PATH"])
    target = source.with_suffix(".so")
    folders = [
        sysconfig.get_paths()["include"],
        source.parent,
        cann / "include",
        cann / "include/experiment",
    ]
    command = [
        "g++",
        "-std=c++17",
        "-w",
        "-shared",
        "-fPIC",
        *(f"-I{folder}" for folder in folders),
    ]
    command += ["-o", str(target), str(source), f"-L{cann / 'lib64'}", "-lruntime", "-lascendcl"]
    command += get_backend_func("get_cc_cmd", build_pch=False)
    subprocess.run(command, check=True)
    return target

"""A folder like that of CANN's toolkit, with the simulated libraries and the headers beside them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
ACL = SOURCES.parent / "simulated_ascend"

OLD_LIMIT, NEW_LIMIT = "RT_LIMIT_TYPE_SIMT_WARP_STACK_SIZE", "RT_LIMIT_TYPE_SIMT_STACK_SIZE"


def build(folder: Path, *, release: int = 8, libraries_of: Path | None = None) -> Path:
    """Makes the folder as CANN of a release has it: from 9 on a header has moved, and a name in it has changed.

    With `libraries_of` another such folder's libraries are used.
    """
    folder.mkdir(parents=True)
    libraries = folder / "lib64"
    shutil.copytree(SOURCES / "include/acl", folder / "include/acl")
    old = release < 9
    headers = folder / ("include/experiment" if old else "pkg_inc") / "runtime/runtime"
    headers.mkdir(parents=True)
    text = (SOURCES / "include/runtime/rt.h").read_text()
    (headers / "rt.h").write_text(text if old else text.replace(OLD_LIMIT, NEW_LIMIT))
    if libraries_of is not None:
        libraries.symlink_to(libraries_of / "lib64")
        return folder
    libraries.mkdir()
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-O0", "-fPIC", "-shared"]
    compiler += ["-pthread", "-Wall", "-Wextra", "-Werror"]
    acl = ["-fvisibility=hidden", "-Wl,-soname,libascendcl.so", str(ACL / "libascendcl.cc")]
    runtime = ["-Wl,-soname,libruntime.so", f"-I{ACL}", str(SOURCES / "libruntime.cc")]
    runtime += [f"-L{libraries}", "-lascendcl", "-Wl,-rpath,$ORIGIN"]
    for name, arguments in (("ascendcl", acl), ("runtime", runtime)):
        subprocess.run([*compiler, "-o", str(libraries / f"lib{name}.so"), *arguments], check=True)
    return folder

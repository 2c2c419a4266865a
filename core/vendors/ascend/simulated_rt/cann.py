"""A folder like that of CANN's toolkit, with the simulated libraries and the headers beside them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.compiled import CXX, MACHINE, compiled

SOURCES = Path(__file__).parent
ACL = SOURCES.parent / "simulated"

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
    compiler = [
        *CXX,
        *["-std=c++17", "-O0", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror"],
    ]
    hidden = [*compiler, "-fvisibility=hidden", "-Wl,-soname,libascendcl.so"]
    acl = compiled("libascendcl.so", hidden, [ACL / "libascendcl.cc"], within=[MACHINE])
    shutil.copy(acl, libraries)
    runtime = compiled(
        "libruntime.so",
        [*compiler, "-Wl,-soname,libruntime.so", f"-I{ACL}", "-Wl,-rpath,$ORIGIN"],
        [SOURCES / "libruntime.cc"],
        within=[ACL],
        libraries=[f"-L{acl.parent}", "-lascendcl"],
    )
    shutil.copy(runtime, libraries)
    return folder

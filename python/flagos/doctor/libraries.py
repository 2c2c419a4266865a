"""Checks for vendor and communication libraries of this machine.

No library is opened. The places searched are those of the dynamic linker and of the vendors' installers.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flagos.doctor.check import Check, ok, warn


@dataclass(frozen=True)
class Library:
    """A library to look for."""

    purpose: str
    sonames: tuple[str, ...]
    #: Variables that point at an installation. ``folders`` are the folders below it with libraries.
    roots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ("lib64", "lib")
    #: Default folders of the vendor's installer.
    usual: tuple[str, ...] = ()
    #: The folder below site-packages, for libraries that come as pip packages.
    packages: str | None = None


LIBRARIES = (
    Library("NVIDIA driver", ("libcuda.so.1",)),
    Library(
        "NVIDIA collectives (NCCL)",
        ("libnccl.so.2", "libnccl.so"),
        roots=("NCCL_HOME", "NCCL_ROOT"),
        packages="nvidia/nccl/lib",
    ),
    Library(
        "FlagCX collectives",
        ("libflagcx.so",),
        roots=("FLAGCX_PATH", "FLAGCX_HOME"),
        folders=("build/lib", "lib64", "lib"),
    ),
    Library(
        "Ascend runtime",
        ("libascendcl.so",),
        roots=("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"),
        usual=("/usr/local/Ascend/ascend-toolkit/latest",),
    ),
    Library(
        "Ascend collectives (HCCL)",
        ("libhccl.so",),
        roots=("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"),
        usual=("/usr/local/Ascend/ascend-toolkit/latest",),
    ),
    Library("MetaX runtime", ("libmcruntime.so",), roots=("MACA_PATH",), usual=("/opt/maca",)),
    Library("MetaX collectives", ("libmccl.so",), roots=("MACA_PATH",), usual=("/opt/maca",)),
)


def libraries() -> Iterator[Check]:
    """One check per library. A missing library is no problem by itself."""
    cache = linker_cache()
    for library in LIBRARIES:
        name = f"library {library.sonames[0]}"
        path = find(library, cache)
        if path is None:
            yield ok(name, f"not found (only needed for: {library.purpose})", path=None)
        elif path.stat().st_mode & stat.S_IWOTH:
            yield warn(
                name,
                f"{path} can be changed by every user, so it will not be opened",
                f"chmod o-w {path}",
                path=str(path),
            )
        else:
            yield ok(name, f"{path} ({library.purpose})", path=str(path))


def find(library: Library, cache: dict[str, Path]) -> Path | None:
    """The first file among the places searched, in the linker's order and then the vendor's."""
    for folder in _folders(library):
        for soname in library.sonames:
            candidate = folder / soname
            if candidate.is_file():
                return candidate
    for soname in library.sonames:
        cached = cache.get(soname)
        if cached is not None and cached.is_file():
            return cached
    return None


def _folders(library: Library) -> Iterator[Path]:
    search = os.environ.get("LD_LIBRARY_PATH", "")
    yield from (Path(folder) for folder in search.split(os.pathsep) if folder)
    roots = [value for name in library.roots if (value := os.environ.get(name))]
    for root in (*roots, *library.usual):
        yield from (Path(root, folder) for folder in library.folders)
    if library.packages is not None:
        for packages in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
            yield Path(packages, library.packages)


def linker_cache() -> dict[str, Path]:
    """The linker's cache as listed by ``ldconfig``: soname → path; empty without that command."""
    # /sbin, the folder of ldconfig, is often missing from the PATH of ordinary users.
    program = shutil.which("ldconfig", path=os.pathsep.join((os.environ.get("PATH", ""), "/sbin")))
    if program is None:
        return {}
    try:
        listing = subprocess.run(
            [program, "-p"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[str, Path] = {}
    for line in listing.splitlines():
        entry = re.match(r"\s*(\S+) \(.*\) => (\S+)", line)
        if entry:
            found.setdefault(entry[1], Path(entry[2]))
    return found

"""Checks for vendor and communication libraries of this machine.

No library is opened. The libraries are those that the descriptions of vendors name. The places searched are those of
the dynamic linker, the folder that ``<NAME>_HOME``, ``<NAME>_ROOT`` or ``<NAME>_PATH`` names, and pip packages.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flagos.doctor.check import Check, ok, warn
from flagos.processes import child


@dataclass(frozen=True)
class Library:
    """A library to look for."""

    purpose: str
    soname: str

    @property
    def name(self) -> str:
        """The name without ``lib`` and ``.so``, by which installers call folders and variables: ``nccl``."""
        return self.soname.partition(".so")[0].removeprefix("lib")


#: Libraries of collective engines that belong to no vendor.
ENGINES = (Library("FlagCX collectives", "libflagcx.so"),)


def of_vendors(*, in_use: bool) -> list[Library]:
    """The libraries that the vendors of this build name, and with ``in_use`` those of the vendor in use."""
    from flagos import _core

    vendors = _core.built_in_vendors()
    if in_use:
        vendors.append(_core.vendor_info())
    named = (library for vendor in vendors for library in vendor["libraries"])
    found = {library["soname"]: Library(library["text"], library["soname"]) for library in named}
    return list(found.values())


def libraries(known: Iterable[Library]) -> Iterator[Check]:
    """One check per library. A missing library is no problem by itself."""
    cache = linker_cache()
    for library in known:
        name = f"library {library.soname}"
        path = find(library, cache)
        if path is None:
            yield ok(name, f"not found, and needed only for this: {library.purpose}", path=None)
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
    """The first file among the places searched: the linker's folders, then those of installers, then its cache."""
    for folder in _folders(library):
        candidate = folder / library.soname
        if candidate.is_file():
            return candidate
    cached = cache.get(library.soname)
    return cached if cached is not None and cached.is_file() else None


def _folders(library: Library) -> Iterator[Path]:
    search = os.environ.get("LD_LIBRARY_PATH", "")
    yield from (Path(folder) for folder in search.split(os.pathsep) if folder)
    prefix = re.sub(r"\W", "_", library.name).upper()
    for suffix in ("HOME", "ROOT", "PATH"):
        if root := os.environ.get(f"{prefix}_{suffix}"):
            yield from (Path(root, folder) for folder in ("build/lib", "lib64", "lib"))
    # A vendor's pip packages have each library in a folder of the library's name, below that of the vendor.
    for packages in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
        yield from Path(packages).glob(f"*/{library.name}/lib")


def linker_cache() -> dict[str, Path]:
    """The linker's cache as listed by ``ldconfig``: soname → path; empty without that command."""
    # /sbin, the folder of ldconfig, is often missing from the PATH of ordinary users.
    program = shutil.which("ldconfig", path=os.pathsep.join((os.environ.get("PATH", ""), "/sbin")))
    if program is None:
        return {}
    try:
        listing = child.run([program, "-p"], deadline=10).output
    except OSError:
        return {}
    found: dict[str, Path] = {}
    for line in listing.splitlines():
        entry = re.match(r"\s*(\S+) \(.*\) => (\S+)", line)
        if entry:
            found.setdefault(entry[1], Path(entry[2]))
    return found

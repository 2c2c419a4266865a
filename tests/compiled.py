"""Libraries that tests compile: once, for all processes and runs that need the same one."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "target" / "compiled"
MACHINE = ROOT / "core/vendors/kit/simulated"
"""The machine that simulated runtimes of chips are made with."""
CXX = shlex.split(os.environ.get("CXX", "g++"))


def including(*parts: Path) -> str:
    """The text of a source that consists of others."""
    return "".join(f'#include "{part}"\n' for part in parts)


def compiled(
    name: str,
    command: Sequence[str],
    sources: Sequence[Path] = (),
    *,
    text: str | None = None,
    within: Sequence[Path] = (),
    libraries: Sequence[str] = (),
) -> Path:
    """The file ``name`` that ``command -o name sources libraries`` makes, in a folder of its own.

    With ``text`` it is made of that, too. It is made again when the command differs, or a C or C++ file in a folder of
    the sources or in ``within``. Raises CalledProcessError if the command fails.
    """
    digest = hashlib.sha256(
        repr((name, [*command], [*map(str, sources)], text, [*libraries])).encode()
    )
    folders = {source.parent for source in sources} | set(within)
    read = {path for folder in folders for path in folder.glob("*.[ch]*")} | {*sources}
    for path in sorted(read):
        digest.update(str(path).encode() + path.read_bytes())
    folder = FOLDER / digest.hexdigest()[:20]
    made = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever comes second waits, and finds it.
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            beside = folder / f"{name}.new"
            given = [*map(str, sources), *(["-x", "c++", "-"] if text is not None else [])]
            whole = [*command, "-o", str(beside), *given, *libraries]
            subprocess.run(whole, input=text, text=True, check=True)
            beside.replace(made)
    return made

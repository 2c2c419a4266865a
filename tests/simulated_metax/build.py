"""Builds the simulated libmcruntime.so: `python -m tests.simulated_metax.build --out FOLDER` prints the folder."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
FOLDER = SOURCES.parents[1] / "dist" / "simulated_metax"
COMPILER = [
    *shlex.split(os.environ.get("CXX", "g++")),
    *("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread"),
    *("-Wall", "-Wextra", "-Werror"),
]


def build(folder: Path) -> Path:
    """Compile the library into a folder. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "libmcruntime.so"
    beside = made.with_suffix(f".{os.getpid()}")
    source = SOURCES / "libmcruntime.cc"
    subprocess.run([*COMPILER, "-o", str(beside), str(source)], check=True)
    beside.replace(made)
    return made


def main() -> None:
    """Build, and print the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help=f"default: {FOLDER.name} in dist/")
    print(build(parser.parse_args().out).parent)


if __name__ == "__main__":
    main()

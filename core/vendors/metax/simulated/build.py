"""Builds the simulated libraries of MetaX.

`python -m core.vendors.metax.simulated.build --out FOLDER` prints the folder.

`libmcruntime.so` alone is what the core needs. With `--torch` there are also the libraries under which NVIDIA's torch
computes on simulated MetaX devices (`run.py`): `libruntime_cu.so`, and the collectives `libmccl.so` and `libflagcx.so`.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.compiled import CXX, MACHINE, compiled

SOURCES = Path(__file__).parent
ROOT = SOURCES.parents[3]
COLLECTIVES = ROOT / "comm" / "simulated"
FOLDER = ROOT / "dist" / "simulated_metax"
COMPILER = [
    *CXX,
    *("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread"),
    *("-Wall", "-Wextra", "-Werror"),
]
DRIVER = "libcuda.so.1"
"""What torch opens by this name is libruntime_cu.so."""


def build(folder: Path) -> Path:
    """Compile the runtime into a folder. Returns its path."""
    return _put(folder, _runtime())


def build_for_torch(folder: Path) -> Path:
    """Compile every library into a folder. Returns the folder."""
    runtime = _put(folder, _runtime())
    headers = [f"-I{path}" for path in _cuda_headers()]
    linked = (str(_runtime()),)
    source = SOURCES / "libruntime_cu.cc"
    carried = _put(folder, _made("libruntime_cu.so", [source], headers, linked))
    (folder / DRIVER).unlink(missing_ok=True)
    (folder / DRIVER).symlink_to(carried.name)
    shared = [SOURCES / "ccl.cc", *(COLLECTIVES / f"{name}.cc" for name in _CCL)]
    flags = [f"-I{COLLECTIVES}", "-fvisibility=default"]
    for name, dialect, defines in (
        ("libmccl.so", "nccl", ["-DSIMULATED_MCCL"]),
        ("libflagcx.so", "flagcx", []),
    ):
        sources = [*shared, COLLECTIVES / f"{dialect}.cc"]
        _put(folder, _made(name, sources, [*flags, *defines], (*linked, "-lrt")))
    return runtime.parent


_CCL = ("calls", "group", "sockets")


def _runtime() -> Path:
    return _made("libmcruntime.so", [SOURCES / "libmcruntime.cc"])


def _made(
    name: str, sources: list[Path], flags: Sequence[str] = (), libraries: Sequence[str] = ()
) -> Path:
    command = [*COMPILER, f"-I{SOURCES}", f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", *flags]
    return compiled(
        name, command, sources, within=[SOURCES, COLLECTIVES, MACHINE], libraries=libraries
    )


def _put(folder: Path, library: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(library, folder))


def _cuda_headers() -> list[Path]:
    """Where the types of CUDA's runtime are that torch was built with, and what their header includes.

    torch's own dependencies have them; Triton has the rest, of another version.
    """
    nvidia, triton = (importlib.util.find_spec(name) for name in ("nvidia", "triton"))
    places = [*(nvidia.submodule_search_locations or ())] if nvidia is not None else []
    found = [
        path.parent for place in places for path in Path(place).glob("cu*/include/driver_types.h")
    ]
    if not found or triton is None or triton.origin is None:
        raise FileNotFoundError("there is no driver_types.h of a CUDA torch, or no triton")
    return [found[0], Path(triton.origin).parent / "backends" / "nvidia" / "include"]


def main() -> None:
    """Build, and print the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help=f"default: {FOLDER.name} in dist/")
    parser.add_argument("--torch", action="store_true", help="also what NVIDIA's torch needs")
    arguments = parser.parse_args()
    print(build_for_torch(arguments.out) if arguments.torch else build(arguments.out).parent)


if __name__ == "__main__":
    main()

"""Builds libmcruntime.so and libmccl.so, by which tests run the vendor `metax` on NVIDIA devices, and libopens.so,
which tells who opens libraries.

`python -m core.vendors.metax.forwarder.build --out FOLDER` prints the folder. A GPU is not needed to build them.
`environment` gives the variables under which a process finds them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
from pathlib import Path

from tests.compiled import CXX, compiled

SOURCES = Path(__file__).parent
FOLDER = SOURCES.parents[3] / "dist" / "metax_forwarder"
LIBRARIES = ("libmcruntime", "libmccl", "libopens")
COMPILER = [
    *CXX,
    *("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-shared"),
    *("-Wall", "-Wextra", "-Werror"),
]


def build(folder: Path) -> Path:
    """Compile them into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        command = [*COMPILER, f"-Wl,-soname,{name}.so"]
        made = compiled(f"{name}.so", command, [SOURCES / f"{name}.cc"], libraries=["-ldl"])
        shutil.copy(made, folder)
    return folder


def environment(folder: Path = FOLDER) -> dict[str, str]:
    """The variables of a process that runs the vendor `metax` over NVIDIA's libraries, those of torch's wheels.

    Raises FileNotFoundError where a forwarder was not built, or torch brings no libcudart.
    """
    for name in LIBRARIES:
        if not (folder / f"{name}.so").is_file():
            raise FileNotFoundError(f"{folder}/{name}.so: build it by `make metax-forwarder`")
    path = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        "FLAGOS_VENDOR": "metax",
        "LD_LIBRARY_PATH": os.pathsep.join(path),
        # Where there is no device file, the vendor takes a library that is loaded already.
        "LD_PRELOAD": str(folder / "libmcruntime.so"),
        "METAX_FORWARDER_CUDART": str(_of_torch("libcudart.so.*")),
        "METAX_FORWARDER_NCCL": str(_of_torch("libnccl.so.2")),
    }


def _of_torch(name: str) -> Path:
    """A library of NVIDIA's wheels that torch depends on."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        found = sorted(Path(folder).glob(f"*/lib/{name}"))
        if found:
            return found[0]
    raise FileNotFoundError(
        f"no wheel beside torch brings {name}: install a build of torch for CUDA"
    )


def main() -> None:
    """Build, and print the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help=f"default: {FOLDER.name} in dist/")
    print(build(parser.parse_args().out))


if __name__ == "__main__":
    main()

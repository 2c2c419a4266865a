"""Fetches what shims are compiled against: python adapters/torch/fetch_torch.py torch==2.15.0 aarch64 FOLDER.

Of torch's wheel for that processor the headers are unpacked, and the two libraries that a shim is linked against, as
FOLDER/torch. Nothing is installed. FOLDER is written as a whole or not at all.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LIBRARIES = ("torch/lib/libc10.so", "torch/lib/libtorch_cpu.so")


def fetch(requirement: str, processor: str, folder: Path) -> None:
    """Unpacks the wheel of `requirement`. Raises CalledProcessError, as pip has told, where there is none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        # The headers are the same for every Python.
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            temporary,
        ]
        command += ["--only-binary=:all:", "--python-version", python]
        command += ["--platform", f"manylinux_2_28_{processor}", requirement]
        subprocess.run(command, check=True)
        (wheel,) = Path(temporary).glob("torch-*.whl")
        unpacked = Path(temporary, "unpacked")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith("torch/include/")]
            archive.extractall(unpacked, [*names, *LIBRARIES])
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Fetches headers and libraries of a torch.")
    parser.add_argument("requirement", help="such as torch==2.15.0")
    parser.add_argument("processor", choices=["x86_64", "aarch64"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        fetch(arguments.requirement, arguments.processor, arguments.folder)
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"fetch_torch: pip found no wheel of {arguments.requirement} for {arguments.processor}: {error}"
        )


if __name__ == "__main__":
    main()

"""Libraries of a vendor: the example chip, and the example chip with a defect."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "core"
EXAMPLE = CORE / "examples" / "vendor"
FLAGS = "-std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -pthread"
#: A library around the example chip, whose own entry functions have other names here.
AROUND = """
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "flagos_kernels.h"

const FlagosVendor *chip_vendor(const FlagosVendorHost *host, const char **reason);
const FlagosKernels *chip_kernels(const FlagosVendorHost *host, const char **reason);
static FlagosVendor chip, table;
static FlagosKernels kernels;

%(code)s

const FlagosVendor *flagos_vendor(const FlagosVendorHost *host, const char **reason) {
  chip = table = *chip_vendor(host, reason);
  kernels = *chip_kernels(host, reason);
  %(change)s
  return &table;
}

const FlagosKernels *flagos_kernels(const FlagosVendorHost *host, const char **reason) {
  (void)host, (void)reason;
  return &kernels;
}
"""

#: Compiles C source and objects into a library of this name.
Compile = Callable[[str, str], Path]
#: Compiles the example chip with code, and a change of its tables, into a library.
Defective = Callable[[str, str], Path]


def _cc(*arguments: str | Path, source: str | None = None) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, *shlex.split(FLAGS), f"-I{CORE / 'include'}", *map(str, arguments)]
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def example_chip(folder: Path, sources: Path = EXAMPLE) -> Path:
    """The folder, for FLAGOS_VENDOR_PATH, with the example chip's library and manifest."""
    library = folder / "libflagos_example.so"
    _cc("-shared", "-o", library, *sorted(sources.glob("*.c")), "-lm")
    shutil.copy(sources / "example.toml", folder)
    folder.chmod(0o755)  # only a folder that nobody else may write to is trusted
    return folder


@pytest.fixture(scope="session")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example chip."""
    library = tmp_path_factory.mktemp("chip") / "libchip.so"
    _cc("-shared", "-o", library, *sorted(EXAMPLE.glob("*.c")), "-lm")
    return library


@pytest.fixture(scope="session")
def chip_objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The example chip in parts, whose entry functions have other names."""
    folder = tmp_path_factory.mktemp("objects")
    renamed = ["-Dflagos_vendor=chip_vendor", "-Dflagos_kernels=chip_kernels"]
    objects = []
    for source in sorted(EXAMPLE.glob("*.c")):
        objects.append(folder / f"{source.stem}.o")
        _cc("-c", *renamed, "-o", objects[-1], source)
    return objects


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """Compiles a library of C source alone."""

    def compile_source(name: str, source: str) -> Path:
        library = tmp_path / f"lib{name}.so"
        _cc("-shared", "-o", library, "-x", "c", "-", source=source)
        return library

    return compile_source


@pytest.fixture
def defective(tmp_path: Path, chip_objects: list[Path]) -> Defective:
    """Compiles the example chip with a defect."""

    def compile_defect(code: str, change: str) -> Path:
        library = tmp_path / "libdefective.so"
        source = AROUND % {"code": code, "change": change}
        _cc("-shared", "-o", library, *chip_objects, "-x", "c", "-", "-lm", source=source)
        return library

    return compile_defect

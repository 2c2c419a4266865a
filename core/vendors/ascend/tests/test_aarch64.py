"""Numbers that CANN's functions take by value, on the processor that most machines with Ascend devices have.

`stub.rs` puts arguments where the ABI has them, without knowing the function's type. Its own tests run here for aarch64
under emulation; on other processors they are `cargo test`'s.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

STUB = Path(__file__).resolve().parents[1] / "src/kernels/stub.rs"
TARGET = "aarch64-unknown-linux-gnu"
LINKER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"


def reason_to_skip() -> str | None:
    for needed in ("rustc", LINKER, EMULATOR):
        if shutil.which(needed) is None:
            return f"there is no {needed}"
    libraries = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", TARGET],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return None if Path(libraries).is_dir() else f"rustup has no target {TARGET}"


def test_floating_point_numbers_by_value(tmp_path: Path) -> None:
    if (why := reason_to_skip()) is not None:
        pytest.skip(why)
    # The module by itself: what it tells the rest of the crate is told to everybody.
    source = tmp_path / "stub.rs"
    source.write_text(STUB.read_text(encoding="utf-8").replace("pub(super)", "pub"))
    program = tmp_path / "stub"
    compiled = ["--edition=2021", "--test", "-O", "--target", TARGET, "-C", f"linker={LINKER}"]
    subprocess.run(["rustc", *compiled, str(source), "-o", str(program)], check=True)
    system = "/usr/aarch64-linux-gnu"  # where Debian's cross compiler has its libraries
    ended = subprocess.run(
        [EMULATOR, "-L", system, str(program)], capture_output=True, text=True, check=False
    )
    passed = re.search(r"ok\. (\d+) passed; 0 failed", ended.stdout)
    assert passed is not None and int(passed[1]) >= 3, f"{ended.stdout}{ended.stderr}"

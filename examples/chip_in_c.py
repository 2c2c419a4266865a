"""Compiles a chip that is written in C, and trains on it.

python examples/chip_in_c.py

The chip is core/examples/vendor: a simulated one, with two devices, over the two C headers of flagos and
nothing else. It has kernels for some operators; the CPU serves the others, which is counted.
docs/bring-your-chip.md writes such a chip step by step.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHIP = ROOT / "core" / "examples" / "vendor"


def compiled(folder: Path) -> Path:
    """The folder with the chip's library, and beside it the manifest by which flagos finds it."""
    compiler = next(filter(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")), None)
    if compiler is None:
        sys.exit("this example needs a C compiler: install gcc, or name one in CC")
    subprocess.run(
        [
            compiler, "-std=c11", "-D_GNU_SOURCE", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
            f"-I{ROOT / 'core' / 'include'}", "-o", str(folder / "libflagos_example.so"),
            *map(str, sorted(CHIP.glob("*.c"))), "-lm",
        ],
        check=True,
    )  # fmt: skip
    shutil.copy(CHIP / "example.toml", folder)
    return folder


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = str(compiled(Path(folder)))
        chip = {**os.environ, "FLAGOS_VENDOR_PATH": found, "FLAGOS_VENDOR": "example"}
        print("compiled the chip; its library is checked:", flush=True)
        flagos = [sys.executable, "-m", "flagos"]
        done = subprocess.run(
            [*flagos, "vendor", "check", f"{found}/example.toml"],
            env=chip, capture_output=True, text=True, check=True,
        )  # fmt: skip
        print(done.stdout.splitlines()[-1].replace(f"{found}/", ""), flush=True)
        subprocess.run([sys.executable, str(ROOT / "examples" / "train.py")], env=chip, check=True)
        for operator in ("aten::mm", "aten::tanh"):
            subprocess.run([*flagos, "explain", operator], env=chip, check=True)


if __name__ == "__main__":
    main()

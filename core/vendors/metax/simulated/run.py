"""Runs a program on simulated MetaX devices: `python -m core.vendors.metax.simulated.run COMMAND [ARGUMENT...]`.

    python -m core.vendors.metax.simulated.run python -c 'import torch; print(torch.ones(2, device="flagos"))'
    python -m core.vendors.metax.simulated.run pytest --vendor metax adapters/torch/tests/test_stream.py

torch is NVIDIA's. The libraries of `build_for_torch` stand before those of CUDA, and `compute.py` has the kernels.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from core.vendors.metax.simulated import build

ROOT = Path(__file__).resolve().parents[4]
SITE = Path(__file__).parent / "site"


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The variables of a process, and of those that it starts, whose torch computes on the simulated devices."""
    hidden = ("FLAGOS_", "SIMULATED_", "MACA_", "CUDA_", "LD_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    loaded = (str(folder / name) for name in ("libmcruntime.so", "libruntime_cu.so"))
    packages = (str(SITE), str(ROOT), os.environ.get("PYTHONPATH"))
    return {
        **kept,
        "LD_PRELOAD": ":".join(loaded),
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, packages)),
        "OMP_NUM_THREADS": "1",
        **variables,
    }


def main() -> None:
    """Build what is missing, and become the command."""
    command = sys.argv[1:]
    if not command or command[0] in ("-h", "--help"):
        raise SystemExit(__doc__)
    if command[0] in ("python", "pytest"):
        module = ["-m", "pytest"] if command[0] == "pytest" else []
        command = [sys.executable, *module, *command[1:]]
    if not (build.FOLDER / "libruntime_cu.so").exists():
        build.build_for_torch(build.FOLDER)
    given = {name: value for name, value in os.environ.items() if name.startswith(_GIVEN)}
    os.execvpe(command[0], command, environment(build.FOLDER, **given))


_GIVEN = ("FLAGOS_", "SIMULATED_METAX_", "MACA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""What a user sets for the program."""


if __name__ == "__main__":
    main()

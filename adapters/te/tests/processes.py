"""Programs in an interpreter of their own."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from adapters.torch.tests.launch import run_script

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "adapters" / "te" / "examples"


def run(program: str | Path, *paths: Path, fails: bool = False, **variables: str) -> str:
    """Standard output of a program (text, or a file), followed by its standard error.

    ``paths`` come first on the module path. Variables of flagos and TE-FL are those given, and no others.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TE_FL_", "TEFL_", "FLAGOS_", "NVTE_"))
    }
    search = [*map(str, paths), os.environ.get("PYTHONPATH", "")]
    environment = {**kept, **variables, "PYTHONPATH": os.pathsep.join(filter(None, search))}
    # `import torch` alone must not bring a device into it.
    environment.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    # The program runs in another folder: the folder of these sources has modules that a user's has not.
    script = "import os; os.chdir('/')\n"
    if isinstance(program, Path):
        script += f"import runpy, sys\nsys.argv = [{str(program)!r}]\n"
        script += f"sys.path[0] = {str(program.parent)!r}\n"
        script += f"runpy.run_path({str(program)!r}, run_name='__main__')\n"
    else:
        script += textwrap.dedent(program)
    done = run_script(script, environment, fails=fails, timeout=120)
    return done.stdout + done.stderr

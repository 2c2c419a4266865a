"""``flagos run``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from flagos.cli.output import CommandError

VARIABLE = "FLAGOS_ALIAS_CUDA"

HELP = f"""usage: flagos run [--] PROGRAM [ARGUMENTS ...]

Runs a program that was written for CUDA, unchanged: `cuda` means flagos in it and in the processes
it starts ({VARIABLE}=1). Where torch has CUDA devices its `import torch` fails with the reason.

PROGRAM is a Python script, `-m MODULE`, `-c CODE`, or any command, such as torchrun.

examples:
  $ flagos run train.py --device cuda
  $ flagos run -m torch.distributed.run --nproc-per-node 2 train.py
  $ flagos run torchrun --nproc-per-node 2 train.py
  $ FLAGOS_VENDOR=ascend flagos run train.py
"""


def run(arguments: list[str]) -> int:
    """Becomes the program. Returns only for ``--help``, and raises CommandError when there is no program to start."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(HELP.rstrip())
        return 0
    if arguments and arguments[0] == "--":
        arguments = arguments[1:]
    if not arguments:
        raise CommandError("there is no program to run", "name one: flagos run train.py")
    command = command_of(arguments)
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, VARIABLE: "1"})


def command_of(arguments: list[str]) -> list[str]:
    """The command line to start, with the path of its program. Raises CommandError where there is none."""
    name = arguments[0]
    if name in ("-m", "-c"):
        if len(arguments) < 2:
            what = "a module" if name == "-m" else "code"
            raise CommandError(f"{name} needs {what}", f"flagos run {name} ...")
        return [sys.executable, *arguments]
    if name.startswith("-"):
        raise CommandError(
            f"there is no option {name!r}", "flagos run --help lists what can follow"
        )
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise CommandError(f"there is no file {name!r}", "name a Python script that exists")
        return [sys.executable, *arguments]
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if program is None:
        raise CommandError(
            f"there is no command {name!r}", "name a Python script, -m MODULE, or a command on PATH"
        )
    return [program, *arguments[1:]]

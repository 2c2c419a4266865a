"""Follows a page of the documentation as a reader would: writes its files, types its commands, compares the output.

A fenced block whose first line is a comment with the name of a file (``// chip.c``, ``# train.py``) is that file from
then on, and with ``, continued`` behind the name a further part of it. In a ``console`` block each line that begins
with ``$`` is a command; the lines below it are what it prints. ``...`` stands for anything, also for whole lines.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^(?://|#) ([\w.]+)(, continued)?$")
SECONDS = 600


@dataclass
class Command:
    """A command of a console block, and what the page says that it prints."""

    line: str
    printed: list[str] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        """Whether the page shows an error."""
        return any(re.match(r"\w*Error: ", line) for line in self.printed)


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of every fenced block that names a language."""
    return BLOCK.findall(page)


def commands(block: str) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        else:
            found[-1].printed.append(line)
    return found


def matches(printed: list[str], real: str) -> bool:
    """Whether a program printed what the page says."""
    pattern = "\n".join(line.rstrip() for line in printed)
    whole = re.escape(pattern).replace(re.escape("..."), ".*")
    text = "\n".join(line.rstrip() for line in real.strip("\n").splitlines())
    return re.fullmatch(whole, text, re.DOTALL) is not None


@dataclass
class Reader:
    """A folder, and the variables that commands have set so far."""

    folder: Path
    variables: dict[str, str]
    #: What has been typed.
    typed: list[str] = field(default_factory=list)

    def follow(self, page: str) -> None:
        """Follows the whole page. An assertion tells the first thing that is not as the page says."""
        for language, text in blocks(page):
            if language == "console":
                for command in commands(text):
                    self.type(command)
            else:
                self.write(text)

    def write(self, text: str) -> None:
        """Writes a block into its file."""
        first, _, rest = text.partition("\n")
        report = FILE.match(first)
        assert report is not None, f"the block that begins with `{first}` names no file"
        path = self.folder / report[1]
        assert report[2] is None or path.exists(), f"{report[1]} is continued before it begins"
        path.write_text((path.read_text() + "\n" if report[2] else "") + rest)

    def type(self, command: Command) -> None:
        """Runs a command, with what earlier ones exported."""
        after = self.folder.parent / "variables"
        script = f'{command.line}\nended=$?; env -0 > "{after}"; exit $ended'
        result = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        # A terminal shows both as they come; the page has what is logged before what is printed.
        printed = result.stderr + result.stdout
        shown = f"$ {command.line}\n{printed}"
        assert (result.returncode != 0) == command.fails, f"status {result.returncode} of {shown}"
        expected = "\n".join(command.printed)
        assert matches(command.printed, printed), f"{shown}\nThe page says:\n{expected}"
        self.typed.append(command.line)
        pairs = (pair.partition("=") for pair in after.read_text().split("\0") if pair)
        self.variables = {name: value for name, _, value in pairs}

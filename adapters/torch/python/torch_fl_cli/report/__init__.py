"""`flagos report`: what a program did, as one page.

Modules: `command` (the command line), `program` (the run), `data` (what the processes left, put together), `page` (the
page), `pictures` (its pictures). None of them imports torch. `torch_fl.report` is the part within the program.
"""

from __future__ import annotations


def run(arguments: list[str]) -> int:
    """The command."""
    from torch_fl_cli.report import command

    return command.main(arguments)

"""`flagos bisect`: which operators' routes make a program fail, and which of their calls.

Modules: `search` (delta debugging over sets), `process` (one run of the program), `state` (what is known so far, on
disk), `session` (the search over the plan), `calls` (the call that differs), `report` (what was found, in words).
None of them imports torch but `plan`, which is a process of its own. So is every run of the program, with
`torch_fl.bisect` in it.
"""

from __future__ import annotations


def run(arguments: list[str]) -> int:
    """The command."""
    from torch_fl_cli.bisect import command

    return command.main(arguments)

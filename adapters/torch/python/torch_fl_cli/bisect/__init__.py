"""`flagos bisect`: which operators' routes make a program fail, and which of their calls.

Modules: `search` (delta debugging over sets), `process` (one run of the program), `state` (what is known so far, on
disk), `session` (the search over the plan), `calls` (the call that differs), `report` (what was found, in words).
None of them imports torch: the program runs in processes of its own, with `torch_fl.bisect` in them.
"""

from __future__ import annotations


def run(arguments: list[str]) -> int:
    """The command."""
    from torch_fl_cli.bisect import command

    return command.main(arguments)

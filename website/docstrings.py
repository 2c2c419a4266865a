"""Docstrings of this repository as Markdown: roles of reStructuredText become code, and examples blocks of code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Module, Object

ROLE = re.compile(r":(?:py:)?[a-z]+:`~?([^`]+)`")
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?:\.\.\.|>>>|    ).*\n?)*)+", re.MULTILINE)


def markdown(text: str) -> str:
    """A docstring as Markdown."""
    text = ROLE.sub(r"`\1`", text)
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)


def rewrite(thing: Object) -> None:
    """Rewrites the docstring of a thing, and of everything in it. Aliases are rewritten where they come from."""
    if thing.docstring is not None:
        thing.docstring.value = markdown(thing.docstring.value)
    for member in thing.members.values():
        if isinstance(member, Object):
            rewrite(member)


class Docstrings(Extension):
    """Rewrites all docstrings of a package when it has been read."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Called by griffe once for each package."""
        rewrite(pkg)

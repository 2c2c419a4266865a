"""Docstrings of this repository as Markdown: roles of reStructuredText become code, and examples blocks of code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:py:)?[a-z]+:`~?([^`]+)`")
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?:\.\.\.|>>>|    ).*\n?)*)+", re.MULTILINE)


def markdown(text: str) -> str:
    """A docstring as Markdown."""
    text = ROLE.sub(r"`\1`", text)
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)


class Docstrings(Extension):
    """Rewrites each docstring when its object has been read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

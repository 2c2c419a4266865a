"""Kinds of steps: each draws the text of a step, from what is live."""

from __future__ import annotations

from collections.abc import Callable

from ..draw import Draw

# The text of a step. Its name in reports is that of the function, or stands before the text.
Kind = Callable[[Draw], "str | tuple[str, str]"]

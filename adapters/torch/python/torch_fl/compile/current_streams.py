"""Dynamo's account of the current stream: of a device that the program uses.

Dynamo asks for the accelerator's current stream before it traces anything, which would initialise the device for
programs of CPU tensors. It needs the answer where a program names streams.
"""

from __future__ import annotations

import functools
from typing import Any

from torch._dynamo.variables import streams

from torch_fl import flagos

_State = streams.SymbolicStreamState
_begin = _State.__init__


@functools.wraps(_begin)
def _begin_if_used(self: Any) -> None:
    if flagos.is_initialized():
        _begin(self)


def _begin_late(self: Any, name: str) -> Any:
    """The stack of streams, once it is asked for."""
    if name != "cur_stream_stack":
        raise AttributeError(name)
    _begin(self)
    return self.__dict__[name]


def register() -> None:
    """Put off Dynamo's question. Idempotent."""
    setattr(_State, "__init__", _begin_if_used)  # noqa: B010
    setattr(_State, "__getattr__", _begin_late)  # noqa: B010

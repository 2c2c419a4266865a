"""Programs: steps of Python text, which run on any device."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# The names that every step may use, besides `dev` and the results of earlier steps.
PREAMBLE = """\
import contextlib, copy, io, math, pickle, threading
import torch
import torch.nn.functional as F
from math import inf, nan
from torch.utils.checkpoint import checkpoint
"""

PROLOGUE = 6  # the steps of a program in turns that run in the first turn alone

# The name of what is no step: the drawing of one tried it on the CPU alone.
TRIED = "tried"


@dataclass(frozen=True)
class Step:
    """One step: its name in reports, its text, and the seed of its random numbers.

    Names that begin with `t` are tensors of the device, with `h` of the host; `r` is whatever else a
    step gives, which no later step writes to.
    """

    name: str
    text: str
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """A difference after a step, and where the program was."""

    step: str  # the step's name
    kind: str  # value, stride, error, ...
    message: str
    index: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_SCRIPT = '''\
"""{title}"""
{preamble}import torch_fl  # the device

torch.set_num_threads(1)


def program(dev):
{body}
{last}

for dev in ("cpu", {device!r}):
    print(f"---- {{dev}}")
    program(dev)
'''
_IN_TURNS = '''\
"""{title}"""
{preamble}import torch_fl  # the device

torch.set_num_threads(1)
dev = torch.device({device!r})


def program():
    kept = []
    for turn in range({turns}):
        if turn == 0:
{first}
{body}
        del kept[:-6]
        if turn % 4 == 3 or turn == {turns} - 1:
            print("-- turn", turn)
{last}

for auto in (False, True):
    print("---- with automatic graphs" if auto else "---- without")
    with torch.flagos.graphs.auto(auto):
        program()
'''
_SHOW = """\
for name, value in dict(locals()).items():
    if isinstance(value, torch.Tensor):
        strided = value.layout == torch.strided
        print(name, value.dtype, tuple(value.shape), value.stride() if strided else value.layout, end=" ")
        print(value.tolist() if strided else value.to_dense().tolist(), value.requires_grad)
"""


def script(
    steps: Sequence[Step], raising: Iterable[int], title: str, device: str, turns: int = 0
) -> str:
    """A program of its own: prints on both sides what raised, and in the end every tensor.

    ``raising`` are the steps that raise somewhere.
    """
    raising = set(raising)
    body = []
    first = ["pass"]
    for index, step in enumerate(steps):
        lines = f"torch.manual_seed({step.seed})\n{step.text}" if _is_random(step) else step.text
        if index in raising:
            lines = f"try:\n{textwrap.indent(lines, '    ')}\nexcept Exception as error:\n"
            lines += f"    print({step.name!r}, type(error).__name__, str(error)[:200])"
        (first if turns and step.seed <= PROLOGUE else body).append(lines)
    if turns:
        return _IN_TURNS.format(
            title=title.replace("\\", "/"),
            preamble=PREAMBLE,
            device=device,
            turns=turns,
            first=textwrap.indent("\n".join(first), " " * 12),
            body=textwrap.indent("\n".join(body), " " * 8),
            last=textwrap.indent(_SHOW, " " * 12),
        )
    return _SCRIPT.format(
        title=title.replace("\\", "/"),
        preamble=PREAMBLE,
        body=textwrap.indent("\n".join(body), "    "),
        last=textwrap.indent(_SHOW, "    "),
        device=device,
    )


def _is_random(step: Step) -> bool:
    return any(
        word in step.text for word in ("rand", "drop", "normal", "multinomial", "bernoulli", "_(")
    )

"""What a run of the program left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Output:
    """An output of one call, as `observed` wrote it."""

    name: str
    call: int
    kind: str  # output, loss or mark
    dtype: str
    shape: tuple[int, ...]
    tokens: str | None  # names the tokens that the model was given
    positions: int  # of them
    values: tuple[Any, ...] | None  # of a small one
    file: Path | None
    logits: bool

    def form(self) -> dict[str, Any]:
        """What is kept of it (`forms.reduced`)."""
        if self.file is None:
            kind = getattr(torch, self.dtype)
            return {"rows": torch.tensor([self.values], dtype=kind), "every": 1}
        form: dict[str, Any] = torch.load(self.file, weights_only=True)
        return form

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def processes(folder: Path) -> dict[str, Path]:
    """The files of the processes that yielded something, by rank and number."""
    return {
        path.stem.removeprefix("outputs."): path for path in sorted(folder.glob("outputs.*.jsonl"))
    }


def read(path: Path) -> Iterator[Output]:
    """The outputs of a process, in their order."""
    with path.open() as file:
        for line in file:
            fields = json.loads(line)
            values = fields.get("values")
            name = fields.get("file")
            yield Output(
                name=fields["name"],
                call=fields["call"],
                kind=fields["kind"],
                dtype=fields["dtype"],
                shape=tuple(fields["shape"]),
                tokens=fields.get("tokens"),
                positions=fields.get("positions", 0),
                values=None if values is None else tuple(values),
                file=None if name is None else path.parent / "values" / name,
                logits=fields.get("logits", False),
            )


def named(folder: Path) -> dict[str, list[torch.Tensor]]:
    """The outputs of the first process by their names, call by call: whole, or those of their rows that are kept."""
    found: dict[str, list[torch.Tensor]] = {}
    files = processes(folder)
    for output in read(files[min(files)]) if files else ():
        form = output.form()
        rows = form["rows"]
        whole = form["every"] == 1 and rows.numel() == torch.Size(output.shape).numel()
        found.setdefault(output.name, []).append(rows.reshape(output.shape) if whole else rows)
    return found


def forget(folder: Path) -> None:
    """Remove the values of a run that is not needed any more."""
    shutil.rmtree(folder / "values", ignore_errors=True)

"""What a program marks (`torch.flagos.mark`): written by the run with the reference's routes, compared by others."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from torch_fl.flagos import marks
from torch_fl_tools.bisect import measure
from torch_fl_tools.bisect.findings import present
from torch_fl_tools.bisect.trial import Trial


def take(trial: Trial) -> None:
    """From now on, write one line for every mark of this process into the folder of the run."""
    marks.take(_Marks(trial).marked)


def file_name(rank: str) -> str:
    """The file of a process's marks, which has the same name in every run."""
    return f"marks.{rank}.jsonl"


class _Marks:
    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._rank = os.environ.get("RANK", "0")
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def marked(self, name: str, value: Any) -> None:
        tensors = measure.flat(value)
        with self._lock:
            number = self._counts[name]
            self._counts[name] += 1
            told: dict[str, Any] = {"name": name, "number": number, "bad": None}
            told["nan"] = sum(int(torch.isnan(t).sum()) for t in tensors if _has_nan(t))
            if self._trial.nan and told["nan"]:
                told["bad"] = f"{told['nan']} of {sum(t.numel() for t in tensors)} are NaN"
            if self._trial.compare is not None:
                told |= self._compared(self._trial.compare, name, number, tensors)
            elif not self._trial.nan:
                self._write(name, number, tensors)
            with (self._trial.folder / file_name(self._rank)).open("a") as file:
                file.write(json.dumps(told) + "\n")

    def _path(self, folder: Path, name: str, number: int) -> Path:
        plain = "".join(c if c.isalnum() else f"%{ord(c):x}" for c in name)
        return folder / "values" / f"{self._rank}.{plain}.{number}.pt"

    def _write(self, name: str, number: int, tensors: list[torch.Tensor]) -> None:
        path = self._path(self._trial.folder, name, number)
        path.parent.mkdir(exist_ok=True)
        torch.save(tensors, path)

    def _compared(
        self, folder: Path, name: str, number: int, tensors: list[torch.Tensor]
    ) -> dict[str, Any]:
        path = self._path(folder, name, number)
        if not path.exists():
            return {"bad": "the run with the reference's routes did not come to this mark"}
        expected = torch.load(path, weights_only=True)
        if len(expected) != len(tensors):
            return {"bad": f"{len(tensors)} tensors instead of {len(expected)}"}
        worst: dict[str, Any] = {"bad": None}
        for one, other in zip(expected, tensors, strict=True):
            found = measure.difference(one, other, self._trial.rtol, self._trial.atol)
            if found.excess >= worst.get("excess", 0.0):
                worst = {"bad": found.reason or None, **present(found)}
        return {name: value for name, value in worst.items() if name not in ("nan", "reason")}


def _has_nan(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex

"""Marks of a program (`torch.flagos.mark`): the reference's run writes them, and other runs compare them."""

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
from torch_fl_tools.bisect.findings import Difference, present
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
            nan = sum(int(torch.isnan(t).sum()) for t in tensors if _has_nan(t))
            bad = difference = None
            if self._trial.nan and nan:
                bad = f"{nan} of {sum(t.numel() for t in tensors)} are NaN"
            if self._trial.compare is not None:
                bad, difference = self._compared(self._trial.compare, name, number, tensors)
            elif not self._trial.nan:
                self._write(name, number, tensors)
            mark = {"name": name, "number": number, "bad": bad, "nan": nan}
            if difference is not None:
                numbers = present(difference)
                mark |= {key: numbers[key] for key in numbers if key not in ("nan", "reason")}
            with (self._trial.folder / file_name(self._rank)).open("a") as file:
                file.write(json.dumps(mark) + "\n")

    def _path(self, folder: Path, name: str, number: int) -> Path:
        plain = "".join(c if c.isalnum() else f"%{ord(c):x}" for c in name)
        return folder / "values" / f"{self._rank}.{plain}.{number}.pt"

    def _write(self, name: str, number: int, tensors: list[torch.Tensor]) -> None:
        path = self._path(self._trial.folder, name, number)
        path.parent.mkdir(exist_ok=True)
        torch.save(tensors, path)

    def _compared(
        self, folder: Path, name: str, number: int, tensors: list[torch.Tensor]
    ) -> tuple[str | None, Difference | None]:
        """Why a mark is bad, if so, and its largest difference from the expected one."""
        path = self._path(folder, name, number)
        if not path.exists():
            return "the run with the reference's routes did not come to this mark", None
        expected = torch.load(path, weights_only=True)
        if len(expected) != len(tensors):
            return f"{len(tensors)} tensors instead of {len(expected)}", None
        worst: Difference | None = None
        for one, other in zip(expected, tensors, strict=True):
            difference = measure.difference(one, other, self._trial.rtol, self._trial.atol)
            if worst is None or difference.excess >= worst.excess:
                worst = difference
        return (None, None) if worst is None else (worst.reason or None, worst)


def _has_nan(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex

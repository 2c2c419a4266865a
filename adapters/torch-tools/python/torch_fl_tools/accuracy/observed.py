"""What a program yields, written in its processes: outputs of outermost modules, losses, and what it marks.

- The results of the outermost `nn.Module` of each call, tensor by tensor. Integer inputs of two dimensions are taken
  for tokens: whether they are those of the other run is compared, and the model's perplexity on them.
- Each number of which a backward pass begins, as `loss`.
- `torch.flagos.mark(name, value)`.

A process writes `outputs.RANK.N.jsonl`, a line for each tensor, and larger ones in `values`: whole, or beyond the
limits as a part of their rows with two sums of each row. Everything is computed on the CPU, from copies.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as modules

from torch_fl.flagos import marks
from torch_fl_tools.accuracy.forms import INLINE, reduced, tokens_hash
from torch_fl_tools.accuracy.settings import Settings
from torch_fl_tools.bisect import measure

#: What models return beside their outputs, to be given back to them: it says nothing that the next output does not.
_KEPT_FOR_LATER = ("past_key_values", "mems", "cache_params")


def take(folder: Path, settings: Settings) -> None:
    """From now on, write what this process and those that it forks yield."""
    recorder = Recorder(folder, settings)
    marks.take(recorder.marked)
    modules.register_module_forward_pre_hook(recorder.enters)
    modules.register_module_forward_hook(recorder.leaves, with_kwargs=True, always_call=True)
    torch.autograd.backward = recorder.watching(torch.autograd.backward)


class Recorder:
    """Writes the outputs of a process."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder, self._settings = folder, settings
        self._lock = threading.RLock()
        self._thread = threading.local()
        self._counts: Counter[str] = Counter()
        self._bytes = 0
        self._path: Path | None = None
        self._pid = 0

    # ---- where outputs come from

    def enters(self, module: torch.nn.Module, args: Any) -> None:
        """A module is called."""
        if not _is_traced():
            self._thread.depth = getattr(self._thread, "depth", 0) + 1

    def leaves(self, module: torch.nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        """A module ends, with an error if there is no result."""
        if _is_traced():
            return
        self._thread.depth = getattr(self._thread, "depth", 1) - 1
        if self._thread.depth == 0 and result is not None:
            self._write(type(module).__name__, "output", result, _tokens((args, kwargs)))

    def marked(self, name: str, value: Any) -> None:
        """The program marks a place."""
        self._write(name, "mark", value, None)

    def watching(self, backward: Callable[..., None]) -> Callable[..., None]:
        """The function, which tells of what it is called for."""

        @functools.wraps(backward)
        def call(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
            one = (
                tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else tensors
            )
            if isinstance(one, torch.Tensor) and one.numel() == 1 and not _is_traced():
                self._write("loss", "loss", one, None)
            backward(tensors, grad_tensors, *args, **kwargs)

        return call

    # ---- how they are written

    def _write(self, name: str, kind: str, value: Any, tokens: torch.Tensor | None) -> None:
        if getattr(self._thread, "busy", False) or torch.flagos.is_current_stream_capturing():  # type: ignore[attr-defined]
            return
        wanted = [
            (name + place, leaf) for place, leaf in _leaves(value) if self._is_wanted(name + place)
        ]
        with self._lock, self._aside(), torch.no_grad():
            if not wanted:
                return
            ids = None if tokens is None else tokens.detach().to("cpu", torch.int64)
            for each, leaf in wanted:
                self._leaf(each, kind, measure.flat(leaf)[0], ids)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        self._thread.busy = True
        try:
            yield
        finally:
            self._thread.busy = False

    def _is_wanted(self, name: str) -> bool:
        only = self._settings.only
        return not only or any(fnmatchcase(name, pattern) for pattern in only)

    def _leaf(self, name: str, kind: str, tensor: torch.Tensor, ids: torch.Tensor | None) -> None:
        path = self._own()
        number = self._counts[name]
        self._counts[name] += 1
        if number >= self._settings.calls:
            return
        line: dict[str, Any] = {
            "name": name,
            "call": number,
            "kind": kind,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
        }
        if ids is not None:
            line |= {"tokens": tokens_hash(ids), "positions": ids.shape[-1]}
        is_logits = _is_logits(name, tensor, ids)
        if tensor.numel() <= INLINE and not is_logits:
            line["values"] = tensor.flatten().tolist()
        else:
            room = min(self._settings.tensor_bytes, self._settings.run_bytes - self._bytes)
            form = reduced(tensor, room, is_logits, ids)
            file = f"{path.stem}.{sum(self._counts.values())}.pt"
            (self._folder / "values").mkdir(exist_ok=True)
            torch.save(form, self._folder / "values" / file)
            self._bytes += form["rows"].nbytes
            line |= {"file": file, "logits": is_logits}
        with path.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def _own(self) -> Path:
        """The file of this process, made at its first output."""
        if self._path is None or self._pid != os.getpid():
            rank, number = os.environ.get("RANK", "0"), 0
            while True:
                path = self._folder / f"outputs.{rank}.{number}.jsonl"
                try:
                    path.open("x").close()
                    break
                except FileExistsError:
                    number += 1
            self._path, self._pid, self._bytes = path, os.getpid(), 0
            self._counts.clear()
        return self._path


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def _tokens(given: Any) -> torch.Tensor | None:
    """The first integer tensor of two dimensions among the arguments of a model."""
    whole = (torch.int64, torch.int32)
    for _, leaf in _leaves(given):
        if (
            isinstance(leaf, torch.Tensor)
            and leaf.dim() == 2
            and leaf.dtype in whole
            and leaf.numel()
        ):
            return leaf
    return None


def _is_logits(name: str, tensor: torch.Tensor, ids: torch.Tensor | None) -> bool:
    if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.shape[-1] < 2:
        return False
    if name.rpartition(".")[2] == "logits":
        return True
    if ids is None or tensor.shape[:-1] != ids.shape:
        return False
    return bool(ids.max() < tensor.shape[-1])


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors and numbers of a nest with their places in it."""
    if isinstance(value, torch.Tensor):
        fake = isinstance(value, torch._subclasses.FakeTensor) or value.device.type == "meta"
        if not fake and not torch._C._functorch.is_functorch_wrapped_tensor(value):
            yield place, value
    elif isinstance(value, (bool, int, float, complex)):
        yield place, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key not in _KEPT_FOR_LATER:
                yield from _leaves(each, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", range(len(value)))
        for key, each in zip(names, value, strict=True):
            yield from _leaves(each, f"{place}.{key}")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if field.name not in _KEPT_FOR_LATER:
                yield from _leaves(getattr(value, field.name), f"{place}.{field.name}")

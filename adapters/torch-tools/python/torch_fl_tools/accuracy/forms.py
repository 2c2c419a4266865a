"""The forms in which outputs are kept: whole, or some of their rows and two sums of every row."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

INLINE = 16
"""Tensors of no more elements are written as numbers."""
_ROW = 1024  # elements of a row of a tensor whose own rows mean nothing
_POSITIONS = 256  # rows of logits that are turned into probabilities at a time


def tokens_hash(ids: torch.Tensor) -> str:
    """A name for tokens and their shape."""
    text = str(tuple(ids.shape)).encode() + ids.contiguous().numpy().tobytes()
    return hashlib.sha256(text).hexdigest()[:16]


def reduced(
    tensor: torch.Tensor, room: int, is_logits: bool, ids: torch.Tensor | None
) -> dict[str, Any]:
    """What is kept of a tensor on the CPU in about `room` bytes.

    `rows` are all rows, or as many as there is room for, at even distances (`every` says which). `mean` and `rms` are
    of every row, if `rows` are not all of them. Of logits `top` and `margin` tell the most likely token of each row and
    how far the second is behind it, and `nll` the mean negative logarithm of the probability of the next of the tokens
    `ids`.
    """
    rows = tensor.reshape(-1, tensor.shape[-1]) if is_logits else _in_rows(tensor, room)
    form: dict[str, Any] = {"rows": rows.clone(), "every": 1}
    if rows.nbytes > room and rows.shape[0] > 1:
        kept = max(1, room // max(1, rows[0].nbytes)) if room > 0 else 1
        form["every"] = -(-rows.shape[0] // kept)
        form["rows"] = rows[:: form["every"]].clone()
        form |= _sums(rows)
    if is_logits:
        top = rows.topk(2, dim=-1)
        form["top"] = top.indices[:, 0].to(torch.int32)
        form["margin"] = (top.values[:, 0].double() - top.values[:, 1].double()).float()
        form["nll"] = _nll(tensor, ids)
    return form


def _in_rows(tensor: torch.Tensor, room: int) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if tensor.nbytes <= room:
        return flat.unsqueeze(0)
    padding = -flat.numel() % _ROW
    return torch.nn.functional.pad(flat, (0, padding)).reshape(-1, _ROW)


def _sums(rows: torch.Tensor) -> dict[str, torch.Tensor]:
    if rows.is_complex():
        rows = torch.view_as_real(rows).flatten(1)
    parts = [part.double() for part in rows.split(_POSITIONS)]
    return {
        "mean": torch.cat([part.mean(-1) for part in parts]),
        "rms": torch.cat([part.square().mean(-1).sqrt() for part in parts]),
    }


def _nll(logits: torch.Tensor, ids: torch.Tensor | None) -> float | None:
    """Of the tokens after the first; None where logits are not those of the tokens."""
    if ids is None or logits.shape[:-1] != ids.shape or ids.shape[-1] < 2:
        return None
    if int(ids.min()) < 0 or int(ids.max()) >= logits.shape[-1]:
        return None
    before = logits[..., :-1, :].reshape(-1, logits.shape[-1])
    after = ids[..., 1:].reshape(-1)
    total = 0.0
    for part, wanted in zip(before.split(_POSITIONS), after.split(_POSITIONS), strict=True):
        total += float(torch.nn.functional.cross_entropy(part.double(), wanted, reduction="sum"))
    return total / after.numel()

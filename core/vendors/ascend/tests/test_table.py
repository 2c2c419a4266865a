"""The tables of the vendor's kernels agree with torch's schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from core.vendors.ascend.tests import simulator

HEAD = re.compile(r"^([\w.]+)\(([^)]*)\)")
CUSTOM = Path(__file__).resolve().parents[1] / "src/kernels/custom"


def schema(name: str) -> torch._C.FunctionSchema:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")._schema


def heads() -> list[tuple[str, list[str]]]:
    found = (HEAD.match(line) for line in simulator.table("rows.txt").splitlines())
    return [(match[1], [name for name in match[2].split(", ") if name]) for match in found if match]


def test_rows_name_the_arguments_of_torchs_schema() -> None:
    rows = heads()
    assert len(rows) > 250
    wrong = {
        name: written
        for name, written in rows
        if written != [each.name for each in schema(name).arguments if not each.is_out]
    }
    assert wrong == {}


def test_hand_written_kernels_are_of_operators_that_torch_has() -> None:
    names = [
        name
        for file in CUSTOM.glob("*.rs")
        for name in re.findall(r'c"aten::([\w.]+)"', file.read_text(encoding="utf-8"))
    ]
    assert len(names) > 80
    for name in names:
        assert schema(name) is not None


def test_an_unknown_name_would_be_noticed() -> None:
    with pytest.raises(AttributeError):
        schema("add.NoSuch")

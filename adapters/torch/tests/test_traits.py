"""The table of operators' particulars (csrc/aten/traits.h), against the operators of the torch that is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch


def _unknown(entries: Mapping[str, Sequence[str]]) -> list[str]:
    """What entries name and torch does not have: operators, and arguments of theirs."""
    operators = torch._C._dispatch_get_all_op_names()
    unknown = []
    for entry, arguments in entries.items():
        named = (
            [name for name in operators if name.startswith(entry[:-1])]
            if entry.endswith("*")
            else [name for name in operators if name == entry]
        )
        if not named:
            unknown.append(entry)
        for name in named:
            schema = torch._C._get_schema(*name.partition(".")[::2])
            has = {argument.name for argument in schema.arguments}
            unknown += [f"{name}({argument})" for argument in arguments if argument not in has]
    return unknown


def test_each_entry_names_operators_of_this_torch():
    entries = torch.ops.flagos.operator_particulars()
    assert len(entries) > 100
    assert _unknown(entries) == []


@pytest.mark.parametrize(
    ("entries", "unknown"),
    [
        ({"aten::no_such_operator": []}, ["aten::no_such_operator"]),
        ({"aten::add.NoSuchOverload": []}, ["aten::add.NoSuchOverload"]),
        ({"aten::_no_such_family_*": []}, ["aten::_no_such_family_*"]),
        ({"aten::relu": ["self", "nothing"]}, ["aten::relu(nothing)"]),
        ({"aten::add.Tensor": ["self", "other"], "aten::_foreach_*": []}, []),
    ],
)
def test_an_entry_that_names_none_is_found(entries, unknown):
    assert _unknown(entries) == unknown

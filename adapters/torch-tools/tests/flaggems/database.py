"""A few entries as torch's operator database has them, which takes ten seconds to import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing import make_tensor
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    OpInfo,
    SampleInput,
    UnaryUfuncInfo,
)

_FLOATS = {torch.float32, torch.float64}
_ALL = {*_FLOATS, torch.int64}


def _silu(op: Any, device: str, dtype: Any, requires_grad: bool, **_: Any) -> Iterator[SampleInput]:
    for shape in ((5, 5), (3,), ()):
        yield SampleInput(
            make_tensor(shape, device=device, dtype=dtype, requires_grad=requires_grad)
        )


_ENTRIES = [
    OpInfo(
        "nn.functional.silu",
        aten_name="silu",
        dtypes=_FLOATS,
        supports_out=False,
        sample_inputs_func=_silu,
    ),
    UnaryUfuncInfo("exp", ref=None, dtypes=_ALL),
    UnaryUfuncInfo("neg", ref=None, dtypes=_ALL),
    UnaryUfuncInfo("abs", ref=None, dtypes=_ALL),
    BinaryUfuncInfo("mul", dtypes=_ALL),
]
DATABASE = {op.full_name: op for op in _ENTRIES}

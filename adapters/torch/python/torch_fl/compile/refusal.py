"""Inductor where it has no code generator for the device: an error that says so, before it starts.

Dynamo and AOTAutograd work on every device, so their other backends compile the same programs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch._inductor.compile_fx as inductor

from flagos import UnsupportedError
from torch_fl.compile.programs import uses_flagos
from torch_fl.native import native

_compile_fx = inductor.compile_fx


@functools.wraps(_compile_fx)
def _refusing(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
    if uses_flagos(model_, example_inputs_):
        raise UnsupportedError(
            f"Inductor generates no code for devices of vendor {native().vendor!r}: use "
            "torch.compile(backend='aot_eager'), whose graphs run on the vendor's kernels, or run the program without "
            "torch.compile (TORCHDYNAMO_DISABLE=1)"
        )
    return _compile_fx(model_, example_inputs_, *args, **kwargs)


def register() -> None:
    """Put the question in front of Inductor where it has no code. Programs of other devices get torch's own."""
    if native().compiled_by == "nothing":
        inductor.compile_fx = _refusing

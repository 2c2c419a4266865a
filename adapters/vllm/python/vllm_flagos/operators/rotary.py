"""Rotations of queries and keys: see `flagos_serving.references.layers`."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import layers as references
from vllm_flagos.vllm import VLLM, triton_missing

_WIDEST = 256  # a head
# The kernel, and the libraries of which its package wants one.
_FILE, _LIBRARIES = "ops/triton/rotary.py", "_vllm_fa[23]_C*.so"


@cache
def missing() -> str | None:
    """Why FlashAttention's kernel for Triton, in vLLM's wheel, cannot serve in this process; None when it can."""
    vllm = find_spec("vllm")
    if triton_missing() is not None or vllm is None or not vllm.submodule_search_locations:
        return triton_missing()
    folder = Path(next(iter(vllm.submodule_search_locations))) / "vllm_flash_attn"
    for wanted in (_FILE, _LIBRARIES):
        if not list(folder.glob(wanted)):
            return f"this vLLM was built without it (no vllm_flash_attn/{wanted})"
    return None


@cache
def _kernel() -> Any:
    from vllm_flagos import torch_view

    module = import_module("vllm.vllm_flash_attn.ops.triton.rotary")
    torch_view.install(module)  # it chooses the device of its tensors by torch.cuda
    return module.apply_rotary


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    if x.shape[-1] > _WIDEST or cos.dim() != 2 or cos.dtype != x.dtype:
        raise decline(
            f"FlashAttention's kernel takes heads of at most {_WIDEST} and one row of cosines for a token, of x's type"
        )
    made: Tensor = _kernel()(x, cos, sin, interleaved=interleaved)
    return made


_in_three_axes = VLLM.function("model_executor.layers.rotary_embedding.mrope", "triton_mrope")


@cache
def _takes_neighbours() -> bool:
    module = import_module("vllm.model_executor.layers.rotary_embedding.mrope")
    return "is_neox_style" in inspect.signature(module.triton_mrope).parameters


def _rotate_in_three_axes(*given: Any) -> None:
    *others, is_neox = given
    if _takes_neighbours():
        _in_three_axes(*given)
    elif is_neox:
        _in_three_axes(*others)
    else:
        raise decline("the kernel of this vLLM rotates halves alone")


rotate = VLLM.declare(
    "rotate",
    reference=references.rotate,
    flash_attention=(_rotate, missing()),
)
rotate_in_three_axes = VLLM.declare(
    "rotate_in_three_axes",
    reference=references.rotate_in_three_axes,
    triton=_rotate_in_three_axes,
)


def _shape(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    return x.new_empty(x.shape)


VLLM.declare_to_compilers(
    rotate, "rotate(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor", _shape
)
VLLM.declare_to_compilers(
    rotate_in_three_axes,
    "rotate_in_three_axes(Tensor! query, Tensor! key, Tensor cos, Tensor sin, int[] sections, int head_size, "
    "int rotated, bool interleaved, bool is_neox) -> ()",
)

"""Parsing of the arguments of attention in TransformerEngine 2.9, 2.14, and from 2.17 on."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from flagos._core import UnsupportedError
from te_fl.calls import Args, Kwargs
from te_fl.operators.arguments import enumerator
from te_fl.operators.quantization import is_quantized

_LAYOUTS = {
    0: "SB3HD",
    1: "SBH3D",
    2: "SBHD_SB2HD",
    3: "SBHD_SBH2D",
    4: "SBHD_SBHD_SBHD",
    5: "BS3HD",
    6: "BSH3D",
    7: "BSHD_BS2HD",
    8: "BSHD_BSH2D",
    9: "BSHD_BSHD_BSHD",
    10: "T3HD",
    11: "TH3D",
    12: "THD_T2HD",
    13: "THD_TH2D",
    14: "THD_THD_THD",
    15: "SBHD_BSHD_BSHD",
    16: "BSHD_SBHD_SBHD",
    17: "THD_BSHD_BSHD",
    18: "THD_SBHD_SBHD",
    25: "BHSD_BHSD_BHSD",
}
_FORMATS = {0: "SBHD", 1: "BSHD", 2: "THD", 7: "BHSD"}
_BIASES = {0: "NO_BIAS", 1: "PRE_SCALE_BIAS", 2: "POST_SCALE_BIAS", 3: "ALIBI"}
_MASKS = {
    0: "NO_MASK",
    1: "PADDING_MASK",
    2: "CAUSAL_MASK",
    3: "PADDING_CAUSAL_MASK",
    4: "CAUSAL_BOTTOM_RIGHT_MASK",
    5: "PADDING_CAUSAL_BOTTOM_RIGHT_MASK",
}
_SOFTMAXES = {0: "VANILLA_SOFTMAX", 1: "OFF_BY_ONE_SOFTMAX", 2: "LEARNABLE_SOFTMAX"}


class Call(NamedTuple):
    """The parsed arguments of a call of attention, without Q, K and V."""

    q_format: str
    kv_format: str
    scale: float
    mask: str
    window: tuple[int, int]
    bottom_right: bool
    lengths: tuple[torch.Tensor | None, torch.Tensor | None]
    offsets: tuple[torch.Tensor | None, torch.Tensor | None]
    bias: torch.Tensor | None


def formats(layout: str) -> tuple[str, str]:
    """(format of q, format of k and v): sb3hd is sbhd, thd_t2hd is thd."""
    parts = layout.lower().split("_")
    plain = [part.replace("2", "").replace("3", "") for part in parts]
    return plain[0], plain[-1]


def format_of(given: Any, otherwise: str) -> str:
    """The format of one tensor: that of the enumerator ``given``, or ``otherwise`` where it is not set."""
    name = "NOT_SET" if given is None else enumerator(given, _FORMATS)
    return otherwise if name.endswith("NOT_SET") else name.lower()


def formats_of(layout: Any, otherwise: tuple[str, str]) -> tuple[str, str]:
    """(format of q, format of k and v) of a layout, or ``otherwise`` where it is ``None``."""
    return otherwise if layout is None else formats(enumerator(layout, _LAYOUTS))


def understand(
    layout: Any,
    bias_type: Any,
    mask_type: Any,
    softmax_type: Any,
    scale: float,
    window: Any,
    bottom_right: bool,
    lengths: tuple[torch.Tensor | None, torch.Tensor | None],
    offsets: tuple[torch.Tensor | None, torch.Tensor | None],
    bias: torch.Tensor | None,
    tensors: tuple[Any, ...],
) -> Call:
    """Parses the arguments of a call. Raises UnsupportedError for an unsupported call."""
    if any(is_quantized(tensor) for tensor in tensors):
        raise UnsupportedError("FP8 attention is not supported by te_fl")
    softmax = enumerator(softmax_type, _SOFTMAXES)
    biased = enumerator(bias_type, _BIASES)
    if softmax != "VANILLA_SOFTMAX" or biased not in ("NO_BIAS", "POST_SCALE_BIAS"):
        raise UnsupportedError(f"{softmax} with {biased} is not supported by te_fl")
    mask = enumerator(mask_type, _MASKS)
    q_format, kv_format = formats(enumerator(layout, _LAYOUTS))
    if (q_format == "thd") != (kv_format == "thd"):
        raise UnsupportedError(f"{q_format} with {kv_format} is not supported by te_fl")
    left, right = (int(window[0]), int(window[1])) if window is not None else (-1, -1)
    return Call(
        q_format,
        kv_format,
        float(scale),
        mask,
        (left, right),
        bottom_right or "BOTTOM_RIGHT" in mask,
        lengths,
        offsets,
        bias if biased == "POST_SCALE_BIAS" else None,
    )


def _with_diagonal(args: Args, at: int, flags: int) -> tuple[Any, ...]:
    """``args`` with ``bottom_right_diagonal`` at place ``at``, which calls of version 2.9 lack.

    From ``at`` on, ``flags`` arguments are bool in version 2.14, and one less in 2.9.
    """
    last = at + flags - 1
    if len(args) > last and not isinstance(args[last], bool):
        return (*args[:at], False, *args[at:])
    return args


def _is_newest(args: Args, window: int) -> bool:
    """Whether the window is at the place that it has from 2.17 on."""
    return len(args) > window and isinstance(args[window], list | tuple)


_FORWARD = ("o_format", "qkv_scale_inv_format")
_BACKWARD = ("o_format", "do_format", "dqkv_layout", "qkv_scale_inv_format", "do_scale_inv_format")


def forward_arguments(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments of ``fused_attn_fwd`` of any version, as they are passed from 2.17 on.

    These versions have two formats after the layout. Older versions derive them from the layout.
    """
    if _is_newest(args, 12):
        return args, kwargs
    if len(args) <= 7:
        return args, {**dict.fromkeys(_FORWARD), "bottom_right_diagonal": False, **kwargs}
    args = _with_diagonal(args, 11, 1)
    return (*args[:7], None, None, *args[7:]), kwargs


def backward_arguments(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments of ``fused_attn_bwd`` of any version, as they are passed from 2.17 on.

    These versions have formats and the layout of the gradients after the layout. They have no dtype of the gradients,
    which is the dtype of the tensors here.
    """
    if _is_newest(args, 14):
        return args, kwargs
    kwargs = {name: value for name, value in kwargs.items() if name != "dqkv_type"}
    if len(args) <= 6:
        return args, {**dict.fromkeys(_BACKWARD), "bottom_right_diagonal": False, **kwargs}
    args = _with_diagonal(args, 10, 2)
    args = (*args[:20], *args[21:])
    return (*args[:6], *[None] * len(_BACKWARD), *args[6:]), kwargs

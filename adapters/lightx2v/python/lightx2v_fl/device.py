"""The torch device of LightX2V's tensors."""

from __future__ import annotations

import os

VARIABLE = "FLAGOS_LIGHTX2V_DEVICE"
FLAGOS = "flagos"
_NATIVE = ("cpu", "cuda", "npu", "mlu", "musa", "xpu", "gcu")


def device_name(given: str | None = None) -> str:
    """The torch device of LightX2V's tensors: ``given``, else the variable's value, else ``flagos``.

    Raises ValueError for another name, with the nearest one.
    """
    name = given or os.environ.get(VARIABLE) or FLAGOS
    if name not in (FLAGOS, *_NATIVE):
        from difflib import get_close_matches

        near = get_close_matches(name, (FLAGOS, *_NATIVE), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{'' if given else f'{VARIABLE}='}{name} is no device: write one of {', '.join((FLAGOS, *_NATIVE))}{hint}"
        )
    return name

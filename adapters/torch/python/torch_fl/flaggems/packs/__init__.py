"""Kernel packs: what FlagGems' operators launch for the calls of recorded programs, compiled, in one file.

A pack has for each call what `torch_fl.python_kernels.capture` records of it, and the programs of its kernels. A
process with a pack (`FLAGOS_PACK`) repeats these calls from C++: without FlagGems, Triton's compiler or tuning. Other
calls go to the native kernel, and are counted, or to FlagGems with `FLAGOS_PACK_OUTSIDE=jit`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_fl.flaggems.packs.file import Pack

PACK = "FLAGOS_PACK"
OUTSIDE = "FLAGOS_PACK_OUTSIDE"
_OUTSIDE = ("native", "jit")


def outside() -> bool:
    """Whether FlagGems serves calls that are not in the pack. Raises ValueError for another value of the variable."""
    value = os.environ.get(OUTSIDE) or _OUTSIDE[0]
    if value not in _OUTSIDE:
        raise ValueError(f"{OUTSIDE}={value}: expected one of {', '.join(_OUTSIDE)}")
    return value == "jit"


@cache
def in_use() -> Pack | None:
    """The pack that FLAGOS_PACK names, which C++ has from then on; None without one.

    Raises ValueError for a pack that is broken, or was made for something other than this machine.
    """
    value = os.environ.get(PACK)
    if not value:
        return None
    from torch_fl.flaggems.packs import opening

    return opening.opened(Path(value))


def configurations() -> Mapping[str, Any]:
    """The configurations of tuned kernels that the pack in use was made with; none without one."""
    pack = in_use()
    return {} if pack is None else pack.header["configurations"]

"""Python functions as kernels of ATen operators.

A chosen function is put into torch's dispatcher over the native kernel. Rooms: `implementations` (which
functions there are, and which serves), `attachment` (one of them in the dispatcher), `capture` with `globals_watch`
(what a call of one launched), `recording` (whether calls are recorded), `replay` (what is known of it).
"""

from torch_fl.python_kernels.attachment import calls, require_operator, reset_calls
from torch_fl.python_kernels.implementations import (
    choose,
    implemented_operators,
    limit,
    refuse_recordings,
    register,
    served_natively,
    unregister,
)

__all__ = [
    "calls",
    "choose",
    "limit",
    "implemented_operators",
    "register",
    "refuse_recordings",
    "require_operator",
    "reset_calls",
    "served_natively",
    "unregister",
]

"""Python functions as kernels of ATen operators.

A chosen function is put into torch's dispatcher over the native kernel. Modules: `implementations` (the registered
functions and the chosen one), `attachment` (a function in the dispatcher), `capture` with `globals_watch`
(the recording of a call), `recording` (whether calls are recorded), `replay` (statistics and control of recordings).
"""

from torch_fl.python_kernels.attachment import (
    Implementation,
    Packed,
    call_class,
    calls,
    declined,
    require_operator,
    reset_calls,
)
from torch_fl.python_kernels.implementations import (
    choose,
    implemented_operators,
    limit,
    observe,
    only_faster,
    pack,
    refuse_recordings,
    register,
    served_natively,
    unregister,
)

__all__ = [
    "Implementation",
    "Packed",
    "call_class",
    "calls",
    "choose",
    "declined",
    "limit",
    "implemented_operators",
    "observe",
    "only_faster",
    "pack",
    "register",
    "refuse_recordings",
    "require_operator",
    "reset_calls",
    "served_natively",
    "unregister",
]

"""Hashes of the source texts that the native path stands in for.

The native path repeats what certain functions of Triton and FlagGems do. That is right only for the text
that was read when it was written, so the text is compared by its hash; with any other, the class is left
alone and `torch_fl.launcher.statistics()` says so.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from torch_fl import flaggems_versions


def _of_flaggems() -> dict[str, set[str]]:
    hashes: dict[str, set[str]] = {}
    for about in flaggems_versions.known().values():
        for name, text in about.launcher.items():
            hashes.setdefault(name, set()).add(text)
    return hashes


HASHES: dict[str, set[str]] = {
    # Triton 3.6.0
    "JITFunction.run": {"966265fd6647e6c1"},
    "JITFunction.create_binder": {"60ef637f822c2b2c"},
    "JITFunction._pack_args": {"c98580f43f5c003c"},
    "JITFunction._do_compile": {"152027ef45acc9fe"},
    "create_function_from_signature": {"48c2c947dec285b1"},
    "compute_cache_key": {"1567204256270b79"},
    "KernelInterface.__getitem__": {"700de469bec361ee"},
    "CompiledKernel.run": {"51d8e4a326256d46"},
    "CompiledKernel.__getitem__": {"77d60bb58759c35a"},
    "CudaLauncher.__call__": {"9412a64d532d5b5c"},
    "make_launcher": {"e4a57f718fc67a6c"},
    "make_tensordesc_arg": {"9567f659f4b2e826"},
    # MetaX's back end: no release of it for a Triton whose functions are above was there to be read.
    "MacaLauncher.__call__": set(),
    "maca.make_launcher": set(),
    # FlagGems' functions, as the versions that flagos knows have them.
    **_of_flaggems(),
}
"""Each function with the hashes of the texts that were read."""


@cache
def hash_of(function: Callable[..., Any]) -> str:
    """The hash of a function's source."""
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]


def mismatch(functions: dict[str, Callable[..., Any]]) -> str | None:
    """The first of these functions whose text was not read, and why; `None` when all were."""
    for name, function in functions.items():
        try:
            found = hash_of(function)
        except (OSError, TypeError) as error:
            return f"the source of {name} cannot be read: {error}"
        if found not in HASHES[name]:
            return f"{name} is of a version that is not known here (its text hashes to {found})"
    return None

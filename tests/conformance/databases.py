"""The databases under test and the cases they consist of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from . import compiled_checks, module_checks, op_checks, optimizer_checks, reference
from .twin_run import Call

DATABASES = ("op", "module", "optim", "foreach")
#: Databases that are run when they are named.
ON_REQUEST = ("compiled",)


@dataclass(frozen=True, order=True)
class Case:
    """One entry of a database at one dtype; the unit of work and of the pass rate."""

    database: str
    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.database}:{self.name}[{self.dtype}]"

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


@cache
def _entries(database: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _LOADERS[database]()


def preload() -> None:
    """Reads every database, which takes seconds, so that no case is charged for it."""
    for database in (*DATABASES, *ON_REQUEST):
        _entries(database)


def _load_ops() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return _unique((op.full_name, op) for op in op_db)


def _load_foreach() -> dict[str, Any]:
    from torch.testing._internal import common_methods_invocations as source

    databases = (
        source.foreach_unary_op_db,
        source.foreach_binary_op_db,
        source.foreach_pointwise_op_db,
        source.foreach_reduce_op_db,
        source.foreach_other_op_db,
    )
    return _unique((op.full_name, op) for database in databases for op in database)


def _load_modules() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return _unique((info.name, info) for info in module_db)


def _load_optimizers() -> dict[str, Any]:
    from torch.testing._internal.common_optimizers import optim_db

    return _unique((info.name, info) for info in optim_db)


_LOADERS: dict[str, Callable[[], dict[str, Any]]] = {
    "op": _load_ops,
    "foreach": _load_foreach,
    "module": _load_modules,
    "optim": _load_optimizers,
    "compiled": _load_ops,
}


_CHECKS: dict[str, Any] = {
    "op": op_checks,
    "foreach": op_checks,
    "module": module_checks,
    "optim": optimizer_checks,
    "compiled": compiled_checks,
}


def _unique(items: Any) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, entry in items:
        if name in entries:
            raise ValueError(f"two database entries are called {name}")
        entries[name] = entry
    return entries


def _dtypes(database: str, entry: Any) -> list[torch.dtype]:
    if database == "optim":
        return optimizer_checks.dtypes_of(entry)
    if database == "compiled":
        return compiled_checks.dtypes_of(entry)
    return list(entry.supported_dtypes(reference.device_type()))


def all_cases(databases: tuple[str, ...] = DATABASES) -> list[Case]:
    """Every entry of the databases at every dtype the reference device supports."""
    return [
        Case(database, name, dtype)
        for database in databases
        for name, entry in _entries(database).items()
        for dtype in sorted(dtype_name(dtype) for dtype in _dtypes(database, entry))
    ]


def variants_of(case: Case) -> list[str]:
    """The variants that apply to a case, in the order they are run."""
    entry = _entries(case.database)[case.name]
    dtype = getattr(torch, case.dtype)
    if case.database == "module":
        return module_checks.variants_of(entry)
    if case.database == "optim":
        return optimizer_checks.variants_of(entry)
    if case.database == "compiled":
        return compiled_checks.variants_of(entry, dtype)
    # Error inputs do not depend on the dtype: one dtype of the entry carries them.
    dtypes = sorted(dtype_name(dtype) for dtype in _dtypes(case.database, entry))
    carrier = "float32" if "float32" in dtypes else dtypes[0]
    return op_checks.variants_of(entry, dtype, errors=case.dtype == carrier)


def calls_of(case: Case, variant: str) -> Iterator[tuple[str, Call]]:
    """Yields the calls of one variant of a case with a description of each."""
    entry = _entries(case.database)[case.name]
    dtype = getattr(torch, case.dtype)
    return _CHECKS[case.database].calls_of(entry, dtype, variant)  # type: ignore[no-any-return]

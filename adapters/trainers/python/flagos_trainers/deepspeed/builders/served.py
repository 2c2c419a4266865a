"""The builders that serve: DeepSpeed's host code, compiled by it at its first use, and operators of the plan.

DeepSpeed instantiates every name of this module that ends in Builder.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from deepspeed.ops.op_builder.builder import OpBuilder as _OpBuilder_
from deepspeed.ops.op_builder.cpu import AsyncIOBuilder as _AsyncIO_
from deepspeed.ops.op_builder.cpu import (
    CPUAdagradBuilder,
    CPUAdamBuilder,
    CPULionBuilder,
    PinMemoryBuilder,
)
from deepspeed.ops.op_builder.utils import UtilsBuilder

from flagos_trainers import operators
from flagos_trainers.deepspeed import files

__all__ = [
    "AsyncIOBuilder",
    "CPUAdagradBuilder",
    "CPUAdamBuilder",
    "CPULionBuilder",
    "FusedAdamBuilder",
    "FusedLambBuilder",
    "FusedLionBuilder",
    "PinMemoryBuilder",
    "UtilsBuilder",
]


class AsyncIOBuilder(_AsyncIO_):
    """Asynchronous files, for NVMe."""

    def load(self, verbose: bool = True) -> Any:
        module = super().load(verbose)
        return SimpleNamespace(**vars(module) | {"aio_handle": files.filling(module.aio_handle)})


class _Planned(_OpBuilder_):
    """A builder of an extension whose functions are operators of the plan: there is nothing to compile."""

    NAME: str
    FUNCTIONS: dict[str, Any]

    def __init__(self) -> None:
        super().__init__(name=self.NAME)

    def absolute_name(self) -> str:
        return f"{__name__}.{self.NAME}"

    def sources(self) -> list[str]:
        return []

    def is_compatible(self, verbose: bool = False) -> bool:
        return True

    def load(self, verbose: bool = True) -> Any:
        return SimpleNamespace(**self.FUNCTIONS)


class FusedAdamBuilder(_Planned):
    """`deepspeed.ops.adam.FusedAdam`, which is what a configuration's Adam and AdamW mean."""

    NAME, BUILD_VAR = "fused_adam", "DS_BUILD_FUSED_ADAM"
    FUNCTIONS = {"multi_tensor_adam": operators.multi_tensor_adam}  # noqa: RUF012


class FusedLionBuilder(_Planned):
    """`deepspeed.ops.lion.FusedLion`."""

    NAME, BUILD_VAR = "fused_lion", "DS_BUILD_FUSED_LION"
    FUNCTIONS = {"multi_tensor_lion": operators.multi_tensor_lion}  # noqa: RUF012


class FusedLambBuilder(_Planned):
    """`deepspeed.ops.lamb.FusedLamb`."""

    NAME, BUILD_VAR = "fused_lamb", "DS_BUILD_FUSED_LAMB"
    FUNCTIONS = {"lamb": operators.lamb}  # noqa: RUF012

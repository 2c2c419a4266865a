"""torch as modules of SGLang see it: without CUDA in ``sglang.srt.utils.common``, with flagos as CUDA in a few others.

``is_cuda()`` of SGLang asks torch and not the platform, and some 450 lines keep the answer in a global at import. On
NVIDIA's devices, which flagos serves beside CUDA, it would choose CUDA's kernels for flagos tensors.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from flagos_serving import torch_view
from flagos_serving.declaration import capability, device_type
from sglang_flagos import releases
from sglang_flagos.engine import SGLANG

COMMON = "sglang.srt.utils.common"


class _WithoutCuda(ModuleType):
    """``torch.cuda`` of a machine that has no such device."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)

    def is_available(self) -> bool:
        """False."""
        return False

    def device_count(self) -> int:
        """0."""
        return 0


class _Cuda(torch_view.Cuda):
    """``torch.cuda``, of flagos."""

    def is_available(self) -> bool:
        """True."""
        return True


class Library(torch.library.Library):
    """Where SGLang registers every operator of ``torch.ops.sglang`` for the key CUDA, whatever the platform."""

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        """As torch's, for flagos' key in the place of CUDA's."""
        key = "PrivateUse1" if dispatch_key == "CUDA" else dispatch_key
        super().impl(op_name, fn, key, **options)


class _WithDevices(torch_view.Torch):
    """With devices of flagos where ``cuda`` is said. For modules that ask no object whether it is a `torch.device`."""

    def device(self, *args: Any) -> torch.device:
        """As torch's."""
        return torch.device("flagos") if args == ("cuda",) else torch.device(*args)


@cache
def view() -> torch_view.Torch:
    """The view, one for the process."""
    return torch_view.Torch(_Cuda())


def hide_cuda() -> None:
    """Takes CUDA from ``sglang.srt.utils.common``, which asks for the platform in the middle of its own import.

    At that moment it has ``torch`` and ``Library``, and none of its functions yet: what its globals are now, these
    ask. Raises RuntimeError if SGLang asks at another time.
    """
    common = sys.modules.get(COMMON)
    if (
        common is None
        or not isinstance(getattr(common, "torch", None), ModuleType)
        or not hasattr(common, "Library")
        or hasattr(common, "is_cuda")
    ):
        raise RuntimeError(
            f"flagos cannot serve SGLang: {COMMON} asks for the platform at another time than in the releases that "
            "sglang-flagos knows. Import sglang.srt.utils before sglang.srt.platforms.current_platform is asked for"
        )
    vars(common)["torch"] = torch_view.Torch(_WithoutCuda("torch.cuda"))
    if releases.installed().operators_for_cuda:
        vars(common)["Library"] = Library


def install() -> None:
    """Gives the modules of this release the view with flagos as CUDA. Imports them."""
    for name in releases.installed().views:
        torch_view.install(SGLANG, import_module(f"sglang.srt.{name}"), view())
    with_devices = _WithDevices(_Cuda())
    for name in releases.installed().views_with_devices:
        torch_view.install(SGLANG, import_module(f"sglang.srt.{name}"), with_devices)
    if device_type() == "cuda":
        for name in releases.installed().as_cuda:
            _take_for_cuda(import_module(name))


def _take_for_cuda(module: ModuleType) -> None:
    """Raises RuntimeError if the module does not ask whether CUDA is there."""
    if not hasattr(module, "_is_cuda"):
        raise RuntimeError(
            f"{module.__name__} has no `_is_cuda`: this release of SGLang is not the one that "
            f"{SGLANG.distribution} knows"
        )
    vars(module)["_is_cuda"] = True
    if module.__name__.endswith("extend_attention"):  # it asks for this only where CUDA is there
        vars(module)["CUDA_CAPABILITY"] = capability()

"""A `torch` for single modules of an engine that say ``torch.cuda``, in which ``torch.cuda`` means flagos.

Engines' own platforms for other devices overwrite names of ``torch.cuda`` for the whole process. Here each such
module gets a view of torch as its global `torch`, and ``torch.cuda`` itself stays as it was.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from flagos_serving.declaration import Framework


class Cuda(ModuleType):
    """``torch.cuda`` as flagos has it: the names of ``torch.flagos``, then those of ``torch.cuda``."""

    def __init__(self) -> None:
        super().__init__("torch.cuda")
        self.CUDAGraph = torch.flagos.Graph  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        ours = getattr(torch.flagos, name, None)  # type: ignore[attr-defined]
        return getattr(torch.cuda, name) if ours is None else ours


class Torch(ModuleType):
    """torch, but for its ``cuda``."""

    def __init__(self, cuda: ModuleType) -> None:
        super().__init__("torch")
        self.cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def install(framework: Framework, module: ModuleType, view: Torch) -> None:
    """Gives a module of an engine the view. Raises RuntimeError if the module has no global `torch`."""
    if not isinstance(getattr(module, "torch", None), ModuleType):
        raise RuntimeError(
            f"{module.__name__} has no `torch`: this release of {framework.name} is not the one that "
            f"{framework.distribution} knows"
        )
    vars(module)["torch"] = view

"""The platform as a few modules of vLLM ask it: `is_cuda_alike` is true there, where that means more than CUDA.

For the process it is false, because most code that asks has kernels of CUDA. `is_cuda` is true where a module asks it
about kernels of vLLM's wheel, which serve flagos' tensors on CUDA.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from vllm.platforms import current_platform


class AsCuda:
    """flagos' platform, but for `is_cuda_alike`."""

    def is_cuda_alike(self) -> bool:
        """True."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(current_platform, name)


class WithKernels(AsCuda):
    """The same for modules whose kernels are in vLLM's wheel."""

    def is_cuda(self) -> bool:
        """True."""
        return True


def install(module: ModuleType, view: type[AsCuda] = AsCuda) -> None:
    """Gives a module of vLLM a view. Raises RuntimeError if the module does not know the platform."""
    if "current_platform" not in vars(module):
        raise RuntimeError(
            f"{module.__name__} has no `current_platform`: this release of vLLM is not the one that vllm-flagos knows"
        )
    vars(module)["current_platform"] = view()
